// Reads the model "BPE" of a tokenizer.json.
#include "io/printable.h"
#include "text/bpe.h"
#include "text/component.h"
#include "text/utf8.h"

namespace walsh {
namespace {

constexpr size_t kMaxMerges = size_t{1} << 23;

[[noreturn]] void refuse(std::string_view where, const std::string& reason) {
  throw Error(ErrorCode::bad_input, std::string(where), reason);
}

// Checks everything except vocabulary and merges, which is the type, unknown keys and unsupported
// options.
void check_model(const Json& model, std::string_view where) {
  // Files written before the key "type" existed are BPE if they have merges.
  const auto type = find_string(model, "type", where);
  if (type.value_or("BPE") != "BPE") {
    refuse_component("model", *type, where);
  }
  check_keys(model,
             {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"},
             where);
  if (find_number(model, "dropout", where).value_or(0) != 0) {
    refuse(where, "dropout makes the encoding random and is not supported");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!find_string(model, key, where).value_or("").empty()) {
      refuse(where, std::string(key) + " is not supported");
    }
  }
}

struct NamedPair {
  std::string_view left, right;
};

// Reads a merge, which is "left right" or ["left", "right"].
NamedPair read_pair(const Json& merge, std::string_view where) {
  if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != text.npos && text.find(' ', space + 1) == text.npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  refuse(where, describe_json(merge) + " where a pair of tokens is expected");
}

}  // namespace

BpeModel::BpeModel(const Json& model, std::string_view where) : where_(where) {
  check_model(model, where);
  vocabulary_ = Vocabulary(get_object(model, "vocab", where), where_ + ".vocab");
  read_merges(get_array(model, "merges", where));
  read_characters();
  const auto unk = find_string(model, "unk_token", where);
  has_unk_ = unk.has_value();
  unk_id_ = has_unk_ ? vocabulary_.find(*unk).value_or(-1) : -1;
  fuse_unk_ = find_bool(model, "fuse_unk", where).value_or(false);
  byte_fallback_ = find_bool(model, "byte_fallback", where).value_or(false);
  ignore_merges_ = find_bool(model, "ignore_merges", where).value_or(false);
}

// Reads the merges. The rank of a merge is its index in the list; both parts and the result must be
// tokens.
void BpeModel::read_merges(const Json& merges) {
  if (merges.size() > kMaxMerges) {
    refuse(where_, "more than " + std::to_string(kMaxMerges) + " merges");
  }
  merges_ = PairTable(merges.size());
  std::string joined;
  uint32_t rank = 0;
  for (const Json& merge : merges) {
    const std::string where = where_ + ".merges[" + std::to_string(rank) + "]";
    if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) {
      continue;  // it is the first line of a merges.txt
    }
    const NamedPair pair = read_pair(merge, where);
    const auto id_of = [&](std::string_view token) {
      const auto id = vocabulary_.find(token);
      if (!id) {
        refuse(where, "token \"" + printable(token, 48) + "\" is not in the vocabulary");
      }
      return *id;
    };
    joined.assign(pair.left).append(pair.right);
    const int32_t left = id_of(pair.left);
    const int32_t right = id_of(pair.right);
    merges_.insert(left, right, {rank, id_of(joined)});
    ++rank;
  }
}

// Fills tables that replace a vocabulary lookup for every character and byte of a text.
void BpeModel::read_characters() {
  static constexpr char kHex[] = "0123456789ABCDEF";
  low_characters_.fill(-1);
  for (int32_t id = 0; id < vocabulary_.end(); ++id) {
    const std::string* token = vocabulary_.token(id);
    if (token == nullptr || token->empty() || token->size() > 4) {
      continue;
    }
    const Utf8Unit unit = decode_utf8(*token);
    if (unit.size != token->size()) {
      continue;
    }
    if (unit.code < low_characters_.size()) {
      low_characters_[unit.code] = id;
    } else {
      high_characters_.emplace(unit.code, id);
    }
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const char name[] = {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
    byte_ids_[byte] = vocabulary_.find(std::string_view(name, 6)).value_or(-1);
  }
}

}  // namespace walsh
