#include "text/jinja/template.h"

#include <new>

#include "io/wide_integers.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/utf8.h"

namespace walsh::jinja {
namespace {

constexpr size_t kMaxSource = size_t{1} << 20;
constexpr uint64_t kStepsPerByte = 4;  // the variables' size is counted in bytes
constexpr size_t kMemoryPerByte = 64;

Value to_integer(Runtime& runtime, std::string_view text) {
  const bool negative = text.starts_with('-');
  Integer result = 0;
  for (const char c : text.substr(negative ? 1 : 0)) {
    const Integer digit = negative ? '0' - c : c - '0';
    if (__builtin_mul_overflow(result, Integer{10}, &result) ||
        __builtin_add_overflow(result, digit, &result))
      runtime.fail_limit("an integer needs more than 128 bits");
  }
  return result;
}

// Converts JSON to a value. Texts are not copied, because the caller's values outlive the
// rendering.
Value to_value(Runtime& runtime, const OrderedJson& json) {
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return json.get<bool>();
    case OrderedJson::value_t::number_integer:
      return Integer{json.get<int64_t>()};
    case OrderedJson::value_t::number_unsigned:
      return Integer{json.get<uint64_t>()};
    case OrderedJson::value_t::number_float:
      return json.get<double>();
    case OrderedJson::value_t::binary:
      return to_integer(runtime, *wide_integer(json));
    case OrderedJson::value_t::string:
      return Text{json.get_ref<const std::string&>()};
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const OrderedJson& item : json)
        items.push_back(to_value(runtime, item));
      return runtime.list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      Dict* const dict = runtime.dict();
      for (const auto& [key, value] : json.get_ref<const OrderedJson::object_t&>()) {
        runtime.put(*dict, Value(Text{key}), to_value(runtime, value));
      }
      return dict;
    }
    default:
      return None();
  }
}

// Returns the size of the variables, which is their bytes of text plus a constant per value. Checks
// that UTF-8 is valid and the depth is bounded, because templates rely on it.
uint64_t measure(const OrderedJson& json, std::string_view where, int depth = 0) {
  const auto text_size = [&](const std::string& text) {
    if (is_valid_utf8(text)) return text.size();
    throw Error(ErrorCode::bad_input, std::string(where), "a variable is not valid UTF-8");
  };
  if (depth > kMaxContainerDepth / 2) {
    throw Error(ErrorCode::limit, std::string(where), "the variables are nested too deeply");
  }
  uint64_t bytes = 8;
  if (json.is_string()) bytes += text_size(json.get_ref<const std::string&>());
  if (json.is_array()) {
    for (const OrderedJson& item : json)
      bytes += measure(item, where, depth + 1);
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.get_ref<const OrderedJson::object_t&>()) {
      bytes += text_size(key) + measure(value, where, depth + 1);
    }
  }
  return bytes;
}

}  // namespace

struct Template::Tree {
  std::string name;
  Block block;
};

Template Template::parse(std::string_view source, std::string_view name) {
  const std::string where(name);
  if (source.size() > kMaxSource) {
    throw Error(ErrorCode::limit, where,
                std::string("has ") + std::to_string(source.size()) + " bytes, more than " +
                    std::to_string(kMaxSource));
  }
  if (!is_valid_utf8(source)) throw Error(ErrorCode::bad_input, where, "is not valid UTF-8");
  auto tree = std::make_shared<Tree>();
  tree->name = where;
  tree->block = jinja::parse(source, name);
  return Template(std::move(tree));
}

std::string Template::render(const Variables& variables, const std::tm& time_now,
                             const Limits& limits) const {
  uint64_t bytes = 0;
  for (const auto& [name, value] : variables)
    bytes += measure(*value, tree_->name);
  Limits scaled = limits;
  scaled.steps += kStepsPerByte * bytes;
  scaled.text_bytes += bytes;  // a long conversation is no growth
  scaled.memory_bytes += kMemoryPerByte * bytes;
  try {
    Runtime runtime(tree_->name, scaled, time_now);
    std::vector<std::pair<std::string_view, Value>> values;
    for (const auto& [name, value] : variables)
      values.emplace_back(name, to_value(runtime, *value));
    return Interpreter(runtime, std::move(values)).run(tree_->block);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::limit, tree_->name, "not enough memory to render the template");
  }
}

}  // namespace walsh::jinja
