#include "import/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "import/gguf_pre_tokenizer.h"
#include "io/json.h"
#include "io/keyed_hash.h"
#include "io/printable.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr const char* kMerges = "tokenizer.ggml.merges";
constexpr const char* kTemplate = "tokenizer.chat_template";
constexpr const char* kTemplates = "tokenizer.chat_templates";
constexpr const char* kSpace = "\xE2\x96\x81";  // SentencePiece writes U+2581 for a space
// Pieces of SentencePiece models have at most some 50 bytes. Finding a piece's merges takes time
// proportional to the square of its length.
constexpr size_t kMaxPieceBytes = 256;

enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

std::string quoted(const std::string& text) {
  return Json(text).dump();
}

// Writes a JSON list or object piece by piece, because vocabularies are too large for a tree.
class ListWriter {
 public:
  explicit ListWriter(std::string& out, char open, char close) : out_(out), close_(close) {
    out_ += open;
  }
  ~ListWriter() { out_ += close_; }
  ListWriter(const ListWriter&) = delete;
  ListWriter& operator=(const ListWriter&) = delete;

  void add(const std::string& item) {
    if (!first_) out_ += ',';
    out_ += item;
    first_ = false;
  }

 private:
  std::string& out_;
  char close_;
  bool first_ = true;
};

class Converter {
 public:
  explicit Converter(const GgufMetadata& m)
      : m_(m), tokens_(list(kTokens).as_texts(m.where(kTokens))), types_(read_types()) {
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (!is_utf8(tokens_[id])) m_.refuse(kTokens, fmt::format("token {} is not UTF-8", id));
    }
  }

  GgufTokenizer byte_level() {
    const std::string name = m_.text(kPre).value_or("default");
    const GgufPreTokenizer* pre = gguf_pre_tokenizer(name);
    if (pre == nullptr)
      m_.refuse(kPre, fmt::format("\"{}\" is not a known kind of words", printable(name, 48)));
    Json steps = Json::array();
    for (const std::string_view pattern : pre->patterns) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
    const Json bytes = {{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"trim_offsets", true},
                        {"use_regex", false}};
    steps.push_back(bytes);
    std::string json = head(Json(), {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}},
                            bytes, Json(), pre->whole_words, false);
    // Added tokens are part of the vocabulary too, so that every token keeps its id of the file.
    // Unused rows after or between the tokens ("[PAD388]") are no tokens.
    add_vocabulary(json, [](int64_t type) { return type != kUnused; });
    add_given_merges(json);
    json += "}}";
    return {std::move(json), config(pre->adds_bos)};
  }

  // If `scored`, the file has scores of pieces in place of merges.
  GgufTokenizer sentence_piece(bool scored) {
    const bool prefix = m_.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
    const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
    Json normalizers = Json::array(), decoders = Json::array();
    if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
    normalizers.push_back(replace);
    decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}});
    decoders.push_back({{"type", "ByteFallback"}});
    decoders.push_back({{"type", "Fuse"}});
    if (prefix)
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    std::string json =
        head({{"type", "Sequence"}, {"normalizers", std::move(normalizers)}}, Json(),
             {{"type", "Sequence"}, {"decoders", std::move(decoders)}}, unknown(), false, true);
    add_vocabulary(json, [](int64_t) { return true; });
    if (scored) {
      add_merges_of_scores(json);
    } else {
      add_given_merges(json);
    }
    json += "}}";
    return {std::move(json), config(true)};
  }

 private:
  const GgufValue& list(const char* key) const { return m_.content().get(key, m_.path()); }

  template <typename T>
  std::vector<T> checked(const char* key, std::vector<T> values) const {
    if (values.size() != tokens_.size()) {
      m_.refuse(key, fmt::format("has {} values for {} tokens", values.size(), tokens_.size()));
    }
    return values;
  }

  std::vector<int64_t> read_types() const {
    if (m_.value(kTypes) == nullptr) return std::vector<int64_t>(tokens_.size(), kNormal);
    auto types = checked(kTypes, list(kTypes).as_ints(m_.where(kTypes)));
    for (size_t id = 0; id < types.size(); ++id) {
      if (types[id] < kNormal || types[id] > kByte) {
        m_.refuse(kTypes, fmt::format("token {} has type {}, expected {} to {}", id, types[id],
                                      int64_t{kNormal}, int64_t{kByte}));
      }
    }
    return types;
  }

  Json unknown() const {
    const auto place = std::find(types_.begin(), types_.end(), kUnknown);
    return place == types_.end() ? Json()
                                 : Json(tokens_[static_cast<size_t>(place - types_.begin())]);
  }

  // Writes everything that comes before the vocabulary.
  std::string head(const Json& normalizer, const Json& pre_tokenizer, const Json& decoder,
                   const Json& unknown, bool whole_words, bool byte_fallback) const {
    std::string json = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)";
    {
      ListWriter added(json, '[', ']');
      for (size_t id = 0; id < tokens_.size(); ++id) {
        const int64_t type = types_[id];
        if (type != kControl && type != kUserDefined && type != kUnknown) continue;
        if (tokens_[id].empty()) continue;  // an empty text cannot be matched
        added.add(Json{{"id", id},
                       {"content", tokens_[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", type != kUserDefined}}
                      .dump());
      }
    }
    json += R"(,"normalizer":)" + normalizer.dump() + R"(,"pre_tokenizer":)" +
            pre_tokenizer.dump() + R"(,"post_processor":null,"decoder":)" + decoder.dump() +
            R"(,"model":{"type":"BPE","dropout":null,"unk_token":)" + unknown.dump() +
            R"(,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":)" +
            Json(byte_fallback).dump() + R"(,"byte_fallback":)" + Json(byte_fallback).dump() +
            R"(,"ignore_merges":)" + Json(whole_words).dump();
    return json;
  }

  void add_vocabulary(std::string& json, bool (*wanted)(int64_t type)) const {
    StringMap<size_t> seen;
    json += R"(,"vocab":)";
    ListWriter vocabulary(json, '{', '}');
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const auto [place, is_new] = seen.try_emplace(tokens_[id], id);
      if (!is_new) {
        m_.refuse(kTokens, fmt::format("tokens {} and {} are both \"{}\"", place->second, id,
                                       printable(tokens_[id], 48)));
      }
      if (wanted(types_[id])) vocabulary.add(quoted(tokens_[id]) + ":" + std::to_string(id));
    }
  }

  void add_given_merges(std::string& json) const {
    json += R"(,"merges":)";
    ListWriter merges(json, '[', ']');
    size_t number = 0;
    for (const std::string& merge : list(kMerges).as_texts(m_.where(kMerges))) {
      const size_t space = merge.find(' ', 1);
      if (!is_utf8(merge) || space == std::string::npos) {
        m_.refuse(kMerges,
                  fmt::format("merge {}, \"{}\", is not two tokens", number, printable(merge, 48)));
      }
      merges.add(
          fmt::format("[{},{}]", quoted(merge.substr(0, space)), quoted(merge.substr(space + 1))));
      ++number;
    }
  }

  // SentencePiece merges the neighbours whose result is the piece with the highest score. So the
  // merges are all pairs that make a piece, in the order of the scores.
  void add_merges_of_scores(std::string& json) const {
    const auto scores = checked(kScores, list(kScores).as_doubles(m_.where(kScores)));
    StringMap<size_t> pieces;
    std::vector<size_t> order;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      // As in llama.cpp, pieces that texts must not contain are merged like others.
      if (types_[id] != kNormal && types_[id] != kUnused) continue;
      if (tokens_[id].size() > kMaxPieceBytes) {
        m_.refuse(kTokens, fmt::format("token {} has {} bytes, expected at most {}", id,
                                       tokens_[id].size(), kMaxPieceBytes));
      }
      if (scores[id] != scores[id]) m_.refuse(kScores, "holds a NaN");
      pieces.try_emplace(tokens_[id], id);
      order.push_back(id);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    json += R"(,"merges":)";
    ListWriter merges(json, '[', ']');
    std::set<std::pair<size_t, size_t>> pairs;
    for (const size_t id : order) {
      const std::string& piece = tokens_[id];
      pairs.clear();
      for (size_t cut = 1; cut < piece.size(); ++cut) {
        if ((piece[cut] & 0xC0) == 0x80) continue;  // it lies inside a UTF-8 character
        const auto left = pieces.find(std::string_view(piece).substr(0, cut));
        const auto right = pieces.find(std::string_view(piece).substr(cut));
        if (left != pieces.end() && right != pieces.end())
          pairs.emplace(left->second, right->second);
      }
      for (const auto& [left, right] : pairs)
        merges.add(fmt::format("[{},{}]", quoted(tokens_[left]), quoted(tokens_[right])));
    }
  }

  // Returns the text of the token whose id a key gives.
  std::optional<std::string> named(const char* key) const {
    const auto id = m_.integer(key);
    if (!id) return std::nullopt;
    if (*id < 0 || static_cast<uint64_t>(*id) >= tokens_.size()) {
      m_.refuse(key, fmt::format("is {}, but there are {} tokens", *id, tokens_.size()));
    }
    return tokens_[static_cast<size_t>(*id)];
  }

  Json chat_templates() const {
    const auto usual = m_.text(kTemplate);
    const GgufValue* names = m_.value(kTemplates);
    if (names == nullptr) return usual ? Json(*usual) : Json();
    Json list = Json::array();
    if (usual) list.push_back({{"name", "default"}, {"template", *usual}});
    for (const std::string& name : names->as_texts(m_.where(kTemplates))) {
      if (!is_utf8(name)) m_.refuse(kTemplates, "is not UTF-8");
      const std::string key = std::string(kTemplate) + "." + name;
      const auto text = m_.text(key);
      if (!text) m_.refuse(key, fmt::format("is missing, but {} lists it", kTemplates));
      list.push_back({{"name", name}, {"template", *text}});
    }
    return list;
  }

  std::string config(bool adds_bos) const {
    Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                   {"add_bos_token", m_.boolean("tokenizer.ggml.add_bos_token").value_or(adds_bos)},
                   {"add_eos_token", m_.boolean("tokenizer.ggml.add_eos_token").value_or(false)}};
    if (const auto bos = named("tokenizer.ggml.bos_token_id")) config["bos_token"] = *bos;
    if (const auto eos = named("tokenizer.ggml.eos_token_id")) config["eos_token"] = *eos;
    if (Json chat = chat_templates(); !chat.is_null()) config["chat_template"] = std::move(chat);
    return config.dump();
  }

  const GgufMetadata& m_;
  const std::vector<std::string>& tokens_;
  std::vector<int64_t> types_;
};

}  // namespace

GgufTokenizer gguf_tokenizer(const GgufMetadata& metadata) {
  const std::string kind = metadata.text(kModel).value_or("none");
  if (kind == "none" || kind == "no_vocab") return {};
  if (kind == "gpt2") return Converter(metadata).byte_level();
  if (kind == "llama") return Converter(metadata).sentence_piece(true);
  if (kind == "gemma4") return Converter(metadata).sentence_piece(false);
  metadata.refuse(
      kModel,
      fmt::format("\"{}\" is not read; known are gpt2 (byte-level BPE), llama (SentencePiece) and "
                  "gemma4 (BPE of characters)",
                  printable(kind, 48)));
}

}  // namespace walsh
