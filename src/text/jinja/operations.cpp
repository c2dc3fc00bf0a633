#include "text/jinja/operations.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "text/jinja/letters.h"
#include "text/jinja/loop.h"
#include "text/jinja/printing.h"

namespace walsh::jinja {
namespace {

bool is_number(const Value& value) {
  return value.is<bool>() || value.is<Integer>() || value.is<double>();
}

// Floats from here on are no Integer.
constexpr double kIntegerEnd = 0x1p127;

// Returns -1, 0 or 1, or 2 if one of them is not a number.
template <typename T>
int order_of(T a, T b) {
  return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2;
}

// Compares exactly, because the integer is not rounded to a double.
int compare_mixed(Integer a, double b) {
  if (!(std::fabs(b) < kIntegerEnd)) return order_of(0.0, b);  // infinity and NaN come here, too
  const double whole = std::trunc(b);
  const int order = order_of(a, static_cast<Integer>(whole));
  return order != 0 ? order : order_of(whole, b);
}

int compare_numbers(const Value& a, const Value& b) {
  const auto x = as_integer(a), y = as_integer(b);
  if (x && y) return order_of(*x, *y);
  if (x) return compare_mixed(*x, *b.as<double>());
  if (!y) return order_of(*a.as<double>(), *b.as<double>());
  const int order = compare_mixed(*y, *a.as<double>());
  return order == 2 ? 2 : -order;
}

bool equal_dicts(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = runtime.find(b, entry.first);
    return other != nullptr && equal(runtime, entry.second, *other);
  });
}

bool equal_sequences(Runtime& runtime, const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind || !a.indexed() || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(runtime, a.items[i], b.items[i])) return false;
  }
  return true;
}

}  // namespace

std::string type_name(const Value& value) {
  if (value.undefined()) return "Undefined";
  if (value.none()) return "NoneType";
  if (value.is<bool>()) return "bool";
  if (value.is<Integer>()) return "int";
  if (value.is<double>()) return "float";
  if (value.text() != nullptr) return "str";
  if (value.dict() != nullptr) return "dict";
  if (value.name_space() != nullptr) return "namespace";
  if (value.loop() != nullptr) return "loop";
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr) return "function";
  switch (sequence->kind) {
    case Sequence::Kind::list:
      return "list";
    case Sequence::Kind::tuple:
      return "tuple";
    case Sequence::Kind::range:
      return "range";
    case Sequence::Kind::iterator:
      return "generator";
    case Sequence::Kind::keys:
      return "dict_keys";
    case Sequence::Kind::values:
      return "dict_values";
    default:
      return "dict_items";
  }
}

bool truth(const Value& value) {
  if (const bool* b = value.as<bool>()) return *b;
  if (const Integer* i = value.as<Integer>()) return *i != 0;
  if (const double* d = value.as<double>()) return *d != 0;
  if (const Text* text = value.text()) return !text->bytes.empty();
  if (const Dict* dict = value.dict()) return !dict->entries.empty();
  if (const Sequence* sequence = value.sequence()) {
    return sequence->kind == Sequence::Kind::iterator || !sequence->items.empty();
  }
  return !value.undefined() && !value.none();
}

bool equal(Runtime& runtime, const Value& a, const Value& b) {
  runtime.step();
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) == 0;
  if (a.data().index() != b.data().index()) return false;
  if (const Text* text = a.text()) {
    if (text->bytes.size() != b.text()->bytes.size()) return false;
    runtime.step(text->bytes.size() / 64);
    return text->bytes == b.text()->bytes;
  }
  if (a.undefined() || a.none()) return true;
  if (a.dict() != nullptr)
    return a.dict() == b.dict() || equal_dicts(runtime, *a.dict(), *b.dict());
  if (a.sequence() != nullptr) return equal_sequences(runtime, *a.sequence(), *b.sequence());
  return same(a, b);
}

bool same(const Value& a, const Value& b) {
  if (a.data().index() != b.data().index()) return false;
  if (const bool* x = a.as<bool>()) return *x == *b.as<bool>();
  if (const Integer* x = a.as<Integer>()) return *x == *b.as<Integer>();
  if (const double* x = a.as<double>()) return *x == *b.as<double>();
  if (const Text* x = a.text()) return x->bytes == b.text()->bytes;
  return a.none() ||
         (!a.undefined() && a.sequence() == b.sequence() && a.dict() == b.dict() &&
          a.name_space() == b.name_space() && a.callable() == b.callable() && a.loop() == b.loop());
}

uint64_t hash(Runtime& runtime, const Value& key) {
  runtime.step();
  if (const Text* text = key.text()) {
    runtime.step(text->bytes.size() / 64);
    return std::hash<std::string_view>()(text->bytes);
  }
  if (const auto integer = as_integer(key)) {
    return std::hash<uint64_t>()(static_cast<uint64_t>(*integer));
  }
  if (const double* real = key.as<double>()) {
    // A float with an integral value is the same key as the integer.
    const bool whole = *real == std::floor(*real) && std::fabs(*real) < kIntegerEnd;
    return whole ? std::hash<uint64_t>()(static_cast<uint64_t>(static_cast<Integer>(*real)))
                 : std::hash<double>()(*real);
  }
  if (key.none() || key.undefined()) return 1;
  const Sequence* sequence = key.sequence();
  if (sequence == nullptr || sequence->kind != Sequence::Kind::tuple) {
    runtime.fail(std::string("unhashable type: '") + type_name(key) + "'");
  }
  uint64_t code = 7;
  for (const Value& item : sequence->items)
    code = code * 1000003 ^ hash(runtime, item);
  return code;
}

int compare(Runtime& runtime, const Value& a, const Value& b, std::string_view sign) {
  runtime.step();
  if (is_number(a) && is_number(b)) return compare_numbers(a, b);
  if (a.text() != nullptr && b.text() != nullptr) {
    runtime.step(std::min(a.text()->bytes.size(), b.text()->bytes.size()) / 64);
    return a.text()->bytes.compare(b.text()->bytes);  // UTF-8 keeps the order of code points
  }
  const Sequence *x = a.sequence(), *y = b.sequence();
  if (x == nullptr || y == nullptr || x->kind != y->kind ||
      (x->kind != Sequence::Kind::list && x->kind != Sequence::Kind::tuple)) {
    for (const Value* value : {&a, &b}) {
      if (const Undefined* undefined = value->as<Undefined>()) {
        runtime.fail(std::string(undefined->why));
      }
    }
    runtime.fail(std::string("'") + std::string(sign) + "' is not supported between '" +
                 type_name(a) + "' and '" + type_name(b) + "'");
  }
  for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
    if (equal(runtime, x->items[i], y->items[i])) continue;
    return compare(runtime, x->items[i], y->items[i], sign);
  }
  return x->items.size() < y->items.size() ? -1 : x->items.size() > y->items.size() ? 1 : 0;
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (item.text() == nullptr) {
      runtime.fail(std::string("'in <string>' requires string as left operand, not ") +
                   type_name(item));
    }
    runtime.pass(text->bytes.size());
    return find_text(text->bytes, item.text()->bytes) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) return runtime.find(*dict, item) != nullptr;
  const std::vector<Value> items = iterate(runtime, container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& member) { return equal(runtime, member, item); });
}

std::optional<Integer> as_integer(const Value& value) {
  if (const Integer* integer = value.as<Integer>()) return *integer;
  if (const bool* b = value.as<bool>()) return *b ? 1 : 0;
  return std::nullopt;
}

std::optional<double> as_real(const Value& value) {
  if (const double* real = value.as<double>()) return *real;
  if (const auto integer = as_integer(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

Integer whole_part(const Runtime& runtime, double value) {
  if (!std::isfinite(value)) {
    runtime.fail(std::string("cannot convert float ") + (std::isnan(value) ? "NaN" : "infinity") +
                 " to integer");
  }
  if (!(std::fabs(value) < kIntegerEnd)) fail_too_large(runtime);
  return static_cast<Integer>(value);
}

void fail_too_large(const Runtime& runtime) {
  runtime.fail_limit("an integer needs more than 128 bits");
}

int64_t integer_argument(const Runtime& runtime, const Value* value, int64_t missing) {
  if (value == nullptr) return missing;
  const auto integer = as_integer(*value);
  if (!integer || *integer > std::numeric_limits<int64_t>::max() ||
      *integer < std::numeric_limits<int64_t>::min()) {
    runtime.fail(std::string("a parameter is ") +
                 (integer ? "too large" : std::string("of type ") + type_name(*value)) +
                 ", expected an integer");
  }
  return static_cast<int64_t>(*integer);
}

std::string_view text_argument(const Runtime& runtime, const Value& value) {
  if (value.text() == nullptr) {
    runtime.fail(std::string("a parameter is of type ") + type_name(value) + ", expected a string");
  }
  return value.text()->bytes;
}

size_t length(Runtime& runtime, const Value& value) {
  if (const Text* text = value.text()) {
    runtime.pass(text->bytes.size());
    return count_characters(text->bytes);
  }
  if (const Dict* dict = value.dict()) return dict->entries.size();
  const Sequence* sequence = value.sequence();
  if (sequence != nullptr && sequence->kind != Sequence::Kind::iterator) {
    return sequence->items.size();
  }
  if (value.undefined()) return 0;
  if (value.loop() != nullptr) return value.loop()->length(runtime);
  runtime.fail(std::string("object of type '") + type_name(value) + "' has no length");
}

std::vector<Value> iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (const Text* text = value.text()) {
    runtime.charge(text->bytes.size() * sizeof(Value));
    runtime.step(text->bytes.size() / 16);
    for (std::string_view rest = text->bytes; !rest.empty();) {
      const std::string_view character = first_character(rest);
      items.emplace_back(Text{character, text->markup});
      rest.remove_prefix(character.size());
    }
  } else if (const Dict* dict = value.dict()) {
    runtime.charge(dict->entries.size() * sizeof(Value));
    runtime.step(dict->entries.size() / 16);
    for (const auto& entry : dict->entries)
      items.push_back(entry.first);
  } else if (Sequence* sequence = value.sequence()) {
    const auto unread = static_cast<ptrdiff_t>(sequence->taken);
    items.assign(sequence->items.begin() + unread, sequence->items.end());
    if (sequence->kind == Sequence::Kind::iterator) sequence->taken = sequence->items.size();
    runtime.charge(items.size() * sizeof(Value));
    runtime.step(items.size() / 16);
  } else if (!value.undefined()) {
    runtime.fail(std::string("'") + type_name(value) + "' object is not iterable");
  }
  return items;
}

}  // namespace walsh::jinja
