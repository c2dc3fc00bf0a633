#include "text/post_processor.h"

#include "io/printable.h"
#include "text/component.h"

namespace walsh {
namespace {

constexpr size_t kMaxPieces = 64;

[[noreturn]] void refuse(std::string_view where, const std::string& reason) {
  throw Error(ErrorCode::bad_input, std::string(where), reason);
}

// Returns the ids that the template's table gives for a special token.
std::vector<int32_t> read_ids(const Json& table, const std::string& name,
                              const Vocabulary& vocabulary, std::string_view where) {
  if (!table.contains(name)) {
    refuse(where, "special token \"" + printable(name, 48) + "\" is not in special_tokens");
  }
  std::vector<int32_t> ids;
  for (const Json& id : get_array(table[name], "ids", where)) {
    const bool fits = id.is_number_integer() && id >= 0 && id < vocabulary.end();
    if (!fits || vocabulary.token(id.get<int32_t>()) == nullptr) {
      refuse(where, "special token \"" + printable(name, 48) + "\" has " + describe_json(id) +
                        " as an id, which is no id of the vocabulary");
    }
    ids.push_back(id.get<int32_t>());
  }
  if (ids.size() > kMaxPieces) {
    refuse(where, "special token \"" + printable(name, 48) + "\" has too many ids");
  }
  return ids;
}

}  // namespace

PostProcessor::PostProcessor(const Json& value, const Vocabulary& vocabulary,
                             std::string_view where) {
  for (const Json* step : flatten_sequence(value, "processors", where)) {
    const std::string type = get_string(*step, "type", where);
    if (type == "ByteLevel") {
      check_keys(*step, {"add_prefix_space", "trim_offsets", "use_regex"}, where);
    } else if (type == "TemplateProcessing") {
      if (!pieces_.empty()) {
        refuse(where, "a second TemplateProcessing is not supported");
      }
      read_template(*step, vocabulary, where);
    } else {
      refuse_component("post-processor", type, where);
    }
  }
}

PostProcessor::PostProcessor(std::optional<int32_t> before, std::optional<int32_t> behind) {
  if (before) pieces_.push_back({false, {*before}});
  pieces_.push_back({true, {}});
  if (behind) pieces_.push_back({false, {*behind}});
}

// Reads a template. Its "pair" is not read, because texts are encoded one at a time. "type_id" has
// no effect on ids.
void PostProcessor::read_template(const Json& step, const Vocabulary& vocabulary,
                                  std::string_view where) {
  check_keys(step, {"single", "pair", "special_tokens"}, where);
  const Json& table = get_object(step, "special_tokens", where);
  bool has_text = false;
  for (const Json& piece : get_array(step, "single", where)) {
    check_keys(piece, {"SpecialToken", "Sequence"}, where);
    const Json* token = find_object(piece, "SpecialToken", where);
    const Json* sequence = find_object(piece, "Sequence", where);
    if ((token == nullptr) == (sequence == nullptr)) {
      refuse(where, "a template piece needs either \"SpecialToken\" or \"Sequence\"");
    }
    if (token != nullptr) {
      const std::string name = get_string(*token, "id", where);
      pieces_.push_back({false, read_ids(table, name, vocabulary, where)});
      continue;
    }
    if (get_string(*sequence, "id", where) != "A" || has_text) {
      refuse(where, "the template \"single\" must use the sequence A once");
    }
    has_text = true;
    pieces_.push_back({true, {}});
  }
  if (!has_text || pieces_.size() > kMaxPieces) {
    refuse(where, "the template \"single\" must use the sequence A once and have at most " +
                      std::to_string(kMaxPieces) + " pieces");
  }
}

std::vector<int32_t> PostProcessor::apply(std::vector<int32_t> ids, bool add_special) const {
  if (!add_special || pieces_.empty()) {
    return ids;
  }
  std::vector<int32_t> out;
  out.reserve(ids.size() + pieces_.size());
  for (const Piece& piece : pieces_) {
    const std::vector<int32_t>& part = piece.is_text ? ids : piece.ids;
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

std::optional<int32_t> PostProcessor::leading() const {
  if (pieces_.empty() || pieces_[0].is_text || pieces_[0].ids.empty()) {
    return std::nullopt;
  }
  return pieces_[0].ids[0];
}

}  // namespace walsh
