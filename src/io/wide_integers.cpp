#include "io/wide_integers.h"

#include <cstdlib>
#include <utility>

namespace walsh {
namespace {

template <typename Value>
void append_exact(const Value& value, std::string& text) {
  const auto dumped = [](const auto& one) {
    return one.dump(-1, ' ', false, Value::error_handler_t::replace);
  };
  if (value.is_binary()) {
    text.append(value.get_binary().begin(), value.get_binary().end());
  } else if (value.is_object()) {
    text += '{';
    bool first = true;
    for (const auto& [key, member] : value.template get_ref<const typename Value::object_t&>()) {
      text.append(std::exchange(first, false) ? "" : ",").append(dumped(Value(key))).append(":");
      append_exact(member, text);
    }
    text += '}';
  } else if (value.is_array()) {
    text += '[';
    bool first = true;
    for (const Value& item : value) {
      text.append(std::exchange(first, false) ? "" : ",");
      append_exact(item, text);
    }
    text += ']';
  } else {
    text += dumped(value);
  }
}

}  // namespace

std::optional<std::string> wide_integer(const OrderedJson& value) {
  if (!value.is_binary()) return std::nullopt;
  const auto& digits = value.get_binary();
  return std::string(digits.begin(), digits.end());
}

std::string dump_exact(const Json& value) {
  std::string text;
  append_exact(value, text);
  return text;
}

std::string dump_exact(const OrderedJson& value) {
  std::string text;
  append_exact(value, text);
  return text;
}

void round_wide_integers(OrderedJson& value) {
  if (const auto digits = wide_integer(value)) {
    value = std::strtod(digits->c_str(), nullptr);
  } else if (value.is_object()) {
    for (auto& [key, member] : value.get_ref<OrderedJson::object_t&>())
      round_wide_integers(member);
  } else if (value.is_array()) {
    for (OrderedJson& item : value)
      round_wide_integers(item);
  }
}

}  // namespace walsh
