#include "text/tokenizer.h"

#include <algorithm>
#include <array>

#include "base/stop.h"
#include "io/printable.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/component.h"
#include "text/declared_tokens.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"

namespace walsh {

// Holds the parts of a tokenizer. They are built in the order of the members, in which they need
// each other.
struct Tokenizer::Parts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  AddedTokens added;  // it comes after the model, whose vocabulary it extends
  PostProcessor post_processor;
  Decoder decoder;
  std::optional<int32_t> bos, eos;

  Parts(const Json& root, const OrderedJson& config, const std::string& where);
  void configure(const Json& config, bool has_processor, const std::string& where);
  const std::string* decoded_form(int32_t id) const;
};

namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 28;
constexpr const char* kConfig = ": tokenizer_config";  // errors append it to the file's name

// Returns the value of a key of the root, or null if it is absent.
const Json& member(const Json& root, const char* key) {
  static const Json kNull;
  const auto place = root.find(key);
  return place == root.end() ? kNull : *place;
}

// Refuses other versions of the file format and keys whose meaning is unknown.
const Json& checked_root(const Json& root, const std::string& where) {
  const auto version = find_string(root, "version", where);
  if (version.value_or("1.0") != "1.0") {
    throw Error(ErrorCode::bad_input, where,
                "version \"" + printable(*version, 48) + "\", expected \"1.0\"");
  }
  check_keys(root,
             {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
              "post_processor", "decoder", "model"},
             where);
  get_object(root, "model", where);
  return root;
}

Json parse(std::string_view text, const std::string& where) {
  if (text.size() > kMaxFileBytes) {
    throw Error(
        ErrorCode::bad_input, where,
        std::to_string(text.size()) + " bytes, expected at most " + std::to_string(kMaxFileBytes));
  }
  return parse_json(text, where);
}

// Returns the id of a token that the configuration names by a string or by {"content": ...}.
std::optional<int32_t> named_token(const Json& config, const char* key,
                                   const Vocabulary& vocabulary, const std::string& where) {
  const Json& value = member(config, key);
  if (value.is_null()) {
    return std::nullopt;
  }
  const std::string content = value.is_object() ? get_string(value, "content", where + "." + key)
                                                : get_string(config, key, where);
  const auto id = vocabulary.find(content);
  if (!id) {
    throw Error(ErrorCode::bad_input, where,
                std::string(key) + " \"" + printable(content, 48) + "\" is not in the vocabulary");
  }
  return id;
}

// Returns whether the two flags decide which tokens are added. In transformers 4 these classes
// build the post-processor from the two flags. A file that names no class gets the class of its
// model, which is the first one for Llama and Mistral.
bool adds_by_flags(const Json& config, const std::string& where) {
  constexpr std::array<std::string_view, 4> kClasses = {"LlamaTokenizer", "CodeLlamaTokenizer",
                                                        "GemmaTokenizer", "CohereTokenizer"};
  std::string name = find_string(config, "tokenizer_class", where).value_or("LlamaTokenizer");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return std::find(kClasses.begin(), kClasses.end(), name) != kClasses.end();
}

}  // namespace

Tokenizer::Parts::Parts(const Json& root, const OrderedJson& config, const std::string& where)
    : normalizer(member(checked_root(root, where), "normalizer"), where + ": normalizer"),
      pre_tokenizer(member(root, "pre_tokenizer"), where + ": pre_tokenizer"),
      model(member(root, "model"), where + ": model"),
      added(with_declared_tokens(member(root, "added_tokens"), config, where + kConfig), normalizer,
            model.vocabulary(), where + ": added_tokens", member(root, "added_tokens").size(),
            find_bool(Json(config), "split_special_tokens", where + kConfig).value_or(false)),
      post_processor(member(root, "post_processor"), model.vocabulary(),
                     where + ": post_processor"),
      decoder(member(root, "decoder"), where + ": decoder") {}

void Tokenizer::Parts::configure(const Json& config, bool has_processor, const std::string& where) {
  bos = named_token(config, "bos_token", model.vocabulary(), where);
  eos = named_token(config, "eos_token", model.vocabulary(), where);
  const auto add_bos = find_bool(config, "add_bos_token", where);
  const auto add_eos = find_bool(config, "add_eos_token", where);
  const bool by_flags = adds_by_flags(config, where);
  if ((!add_bos && !add_eos) || (has_processor && !by_flags)) return;
  // These classes have the defaults "<s>" and "</s>", of which only "<s>" is added.
  const auto token = [&](const char* key, std::optional<int32_t> named, const char* usual) {
    return config.contains(key) || !by_flags ? named : model.vocabulary().find(usual);
  };
  const auto first = token("bos_token", bos, "<s>"), last = token("eos_token", eos, "</s>");
  post_processor = PostProcessor(add_bos.value_or(by_flags) ? first : std::nullopt,
                                 add_eos.value_or(false) ? last : std::nullopt);
}

const std::string* Tokenizer::Parts::decoded_form(int32_t id) const {
  const std::string* form = added.decoded_form(id);
  return form != nullptr ? form : model.vocabulary().token(id);
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json,
                               std::string_view tokenizer_config_json, std::string_view where) {
  const std::string file(where);
  const Json root = parse(tokenizer_json, file);
  const std::string config_file = file + kConfig;
  const bool has_config = !tokenizer_config_json.empty();
  const OrderedJson config = has_config ? parse_ordered_json(tokenizer_config_json, config_file)
                                        : OrderedJson(OrderedJson::object());
  if (!config.is_object()) {
    throw Error(ErrorCode::bad_input, config_file,
                describe_json(Json(config)) + " where an object is expected");
  }
  auto parts = std::make_unique<Parts>(root, config, file);
  if (has_config) {
    parts->configure(Json(config), !member(root, "post_processor").is_null(), config_file);
  } else {
    parts->bos = parts->post_processor.leading();
  }
  return Tokenizer(std::move(parts));
}

std::vector<int32_t> Tokenizer::encode(std::string_view utf8, bool add_special) const {
  if (utf8.size() > kMaxTextBytes) {
    throw Error(ErrorCode::limit, "text", std::to_string(utf8.size()) + " bytes to tokenize");
  }
  const std::string text = to_valid_utf8(utf8);
  StepBudget steps = StepBudget::for_text(text.size());
  std::vector<int32_t> ids;
  BpeModel::Workspace workspace;
  // The stages find added tokens in the raw text, normalize, find added tokens in the normalized
  // text, split words and merge.
  for (const AddedSegment& raw : parts_->added.split_raw(text, steps)) {
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      continue;
    }
    const Span span = raw.span;
    size_t start = span.begin == 0 ? decode_utf8(text).size : 0;
    const std::string normalized =
        parts_->normalizer.apply(text.substr(span.begin, span.end - span.begin), start, steps);
    for (const AddedSegment& segment : parts_->added.split_normalized(normalized, steps)) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
        continue;
      }
      const std::string_view piece =
          std::string_view(normalized)
              .substr(segment.span.begin, segment.span.end - segment.span.begin);
      parts_->pre_tokenizer.split(piece, start - std::min(start, segment.span.begin), steps,
                                  [&](std::string_view word, size_t) {
                                    parts_->model.encode(word, workspace, steps, ids);
                                  });
    }
  }
  return parts_->post_processor.apply(std::move(ids), add_special);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  StreamDecoder stream(*this, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    check_stop();
    text += stream.push(id);
  }
  return text += stream.finish();
}

int32_t Tokenizer::vocab_size() const {
  return parts_->model.vocabulary().end();
}

std::optional<int32_t> Tokenizer::token_id(std::string_view token) const {
  return parts_->model.vocabulary().find(token);
}

std::optional<std::string> Tokenizer::token(int32_t id) const {
  const std::string* text = parts_->model.vocabulary().token(id);
  return text == nullptr ? std::nullopt : std::optional<std::string>(*text);
}

std::vector<std::string> Tokenizer::token_bytes() const {
  std::vector<std::string> forms;
  std::vector<size_t> ids;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const std::string* form = parts_->decoded_form(id);
    if (form == nullptr) continue;
    forms.push_back(*form);
    ids.push_back(static_cast<size_t>(id));
  }
  std::vector<std::string> known = parts_->decoder.bytes_of(forms);
  std::vector<std::string> result(static_cast<size_t>(vocab_size()));
  for (size_t i = 0; i < ids.size(); ++i)
    result[ids[i]] = std::move(known[i]);
  return result;
}

bool Tokenizer::is_special(int32_t id) const {
  return parts_->added.is_special(id);
}
std::optional<int32_t> Tokenizer::bos() const {
  return parts_->bos;
}
std::optional<int32_t> Tokenizer::eos() const {
  return parts_->eos;
}
std::optional<int32_t> Tokenizer::added_bos() const {
  const auto first = parts_->post_processor.leading();
  return !parts_->bos || first == parts_->bos ? first : std::nullopt;
}

struct StreamDecoder::State {
  const Tokenizer::Parts* parts;
  bool skip_special;
  DecodeStream stream;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : state_(new State{tokenizer.parts_.get(), skip_special, tokenizer.parts_->decoder.start()}) {}
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(int32_t id) {
  const std::string* token = state_->parts->decoded_form(id);
  if (token == nullptr || (state_->skip_special && state_->parts->added.is_special(id))) {
    return {};
  }
  return state_->stream.push(*token);
}

std::string StreamDecoder::finish() {
  std::string rest = state_->stream.finish();
  state_->stream = state_->parts->decoder.start();
  return rest;
}

}  // namespace walsh
