#include "text/component.h"

#include <algorithm>

#include "io/printable.h"
#include "text/utf8.h"

namespace walsh {
namespace {

// No real tokenizer has as many; the limit bounds the recursion of components.
constexpr size_t kMaxComponents = 64;

void flatten_into(const Json& value, const char* members_key, std::string_view where,
                  std::vector<const Json*>& out) {
  // The depth is bounded by the JSON parser.
  const std::string type = get_string(value, "type", where);
  if (type != "Sequence") {
    out.push_back(&value);
    if (out.size() > kMaxComponents) {
      throw Error(ErrorCode::bad_input, std::string(where),
                  "more than " + std::to_string(kMaxComponents) + " members");
    }
    return;
  }
  check_keys(value, {members_key}, where);
  for (const Json& member : get_array(value, members_key, where)) {
    flatten_into(member, members_key, where, out);
  }
}

}  // namespace

void check_keys(const Json& object, std::initializer_list<std::string_view> allowed,
                std::string_view where) {
  for (const auto& [key, value] : object.items()) {
    if (key != "type" && std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      throw Error(ErrorCode::bad_input, std::string(where),
                  "key \"" + printable(key) + "\" is not known");
    }
  }
}

// Nested sequences are flattened, because only the order of the components matters.
std::vector<const Json*> flatten_sequence(const Json& value, const char* members_key,
                                          std::string_view where) {
  std::vector<const Json*> out;
  if (!value.is_null()) {
    flatten_into(value, members_key, where, out);
  }
  return out;
}

Pattern read_pattern(const Json& object, const char* key, std::string_view where) {
  const Json& value = get_object(object, key, where);
  check_keys(value, {"String", "Regex"}, where);
  const auto literal = find_string(value, "String", where);
  const auto regex = find_string(value, "Regex", where);
  if (literal.has_value() == regex.has_value()) {
    throw Error(ErrorCode::bad_input, std::string(where),
                "the pattern needs either \"String\" or \"Regex\"");
  }
  return literal ? Pattern::literal(*literal, where) : Pattern::regex(*regex, where);
}

char32_t get_character(const Json& object, const char* key, std::string_view where) {
  const std::string text = get_string(object, key, where);
  if (!text.empty()) {
    const Utf8Unit unit = decode_utf8(text);
    if (unit.size == text.size()) {
      return unit.code;
    }
  }
  throw Error(ErrorCode::bad_input, std::string(where),
              "key \"" + std::string(key) + "\" is \"" + printable(text, 48) +
                  "\", expected one character");
}

void refuse_component(std::string_view kind, std::string_view type, std::string_view where) {
  throw Error(ErrorCode::bad_input, std::string(where),
              "the " + std::string(kind) + " \"" + printable(type, 48) + "\" is not supported");
}

}  // namespace walsh
