#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/letters.h"
#include "text/jinja/operations.h"
#include "text/jinja/printing.h"

namespace walsh::jinja {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void refuse(const Runtime& runtime, Operator op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (const Undefined* undefined = value->as<Undefined>()) {
      runtime.fail(std::string(undefined->why));
    }
  }
  runtime.fail(std::string("unsupported operand types for ") +
               std::string(kSigns[static_cast<size_t>(op)]) + ": '" + type_name(a) + "' and '" +
               type_name(b) + "'");
}

Integer checked(const Runtime& runtime, bool overflow, Integer result) {
  if (overflow) fail_too_large(runtime);
  return result;
}

// Returns the double that is nearest to a / b. It is rounded once, as where Python divides
// integers.
double quotient(Integer a, Integer b) {
  constexpr Unsigned kEnough = Unsigned{1} << 55;  // a double has two bits less
  const Unsigned divisor = magnitude(b);
  Unsigned whole = magnitude(a) / divisor, rest = magnitude(a) % divisor;
  int scale = 0;
  for (; whole < kEnough && rest != 0; --scale) {
    // Compares twice the remainder with the divisor without needing a 129th bit.
    const bool one = rest >= divisor - rest;
    rest = one ? rest - (divisor - rest) : rest + rest;
    whole = whole * 2 + (one ? 1 : 0);
  }
  const double size = std::ldexp(static_cast<double>(whole | (rest != 0 ? 1 : 0)), scale);
  return (a < 0) != (b < 0) ? -size : size;
}

Value raise_real(const Runtime& runtime, double base, double exponent) {
  if (base == 0 && exponent < 0) runtime.fail("zero cannot be raised to a negative power");
  const double result = std::pow(base, exponent);
  const bool finite = std::isfinite(base) && std::isfinite(exponent);
  if (finite && std::isnan(result)) runtime.fail("a power is a complex number");
  if (finite && std::isinf(result)) runtime.fail("a power is too large for a float");
  return result;
}

double floor_quotient(double a, double b) {
  double rest = std::fmod(a, b), parts = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) parts -= 1;
  if (parts == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(parts);
  return parts - whole > 0.5 ? whole + 1 : whole;
}

Integer raise(const Runtime& runtime, Integer base, Integer exponent) {
  Integer result = 1;
  // A base of at least 2 overflows long before the loop is long.
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (; exponent > 0; --exponent) {
    const bool overflow = __builtin_mul_overflow(result, base, &result);
    checked(runtime, overflow, 0);
  }
  return result;
}

Value integers(const Runtime& runtime, Operator op, Integer a, Integer b) {
  Integer result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::subtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::multiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::power:
      if (b < 0) return raise_real(runtime, static_cast<double>(a), static_cast<double>(b));
      return raise(runtime, a, b);
    default:
      if (b == 0) runtime.fail("division by zero");
      if (op == Operator::divide) return quotient(a, b);
      if (b == -1) {
        overflow = op == Operator::floor_divide && __builtin_sub_overflow(Integer{0}, a, &result);
        break;
      }
      // Python rounds towards minus infinity.
      const bool down = a % b != 0 && (a < 0) != (b < 0);
      result = op == Operator::modulo ? a % b + (down ? b : 0) : a / b - (down ? 1 : 0);
  }
  return checked(runtime, overflow, result);
}

Value reals(const Runtime& runtime, Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return a + b;
    case Operator::subtract:
      return a - b;
    case Operator::multiply:
      return a * b;
    case Operator::power:
      return raise_real(runtime, a, b);
    default:
      if (b == 0) runtime.fail("division by zero");
      if (op == Operator::divide) return a / b;
      if (op == Operator::floor_divide) return floor_quotient(a, b);
      double rest = std::fmod(a, b);
      if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
      return rest == 0 ? std::copysign(0.0, b) : rest;
  }
}

Value repeat(Runtime& runtime, const Value& value, Integer count) {
  const auto times = static_cast<size_t>(std::clamp<Integer>(count, 0, Integer{1} << 62));
  if (const Text* text = value.text()) {
    if (text->bytes.empty() || times == 0) return Text{{}, text->markup};
    Builder out(runtime);
    if (times > runtime.limits().text_bytes) out.append(' ', times);  // append refuses it
    for (size_t i = 0; i < times; ++i)
      out.append(text->bytes);
    return out.value(text->markup);
  }
  const Sequence& sequence = *value.sequence();
  if (!sequence.items.empty() && times > runtime.limits().memory_bytes) {
    runtime.fail_limit("makes a list of too many items");
  }
  const size_t repeats = sequence.items.empty() ? 0 : times;
  runtime.charge(sequence.items.size() * repeats * sizeof(Value));
  std::vector<Value> items;
  for (size_t i = 0; i < repeats; ++i) {
    runtime.step();
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return runtime.sequence(sequence.kind, std::move(items));
}

// Concatenates two texts. A text that is added to markup is escaped.
Value join_texts(Runtime& runtime, const Text& a, const Text& b) {
  const bool markup = a.markup || b.markup;
  Builder out(runtime);
  for (const Text* text : {&a, &b}) {
    if (markup && !text->markup) {
      append_escaped(text->bytes, out);
    } else {
      out.append(text->bytes);
    }
  }
  return out.value(markup);
}

bool repeatable(const Value& value) {
  const Sequence* sequence = value.sequence();
  return value.text() != nullptr ||
         (sequence != nullptr &&
          (sequence->kind == Sequence::Kind::list || sequence->kind == Sequence::Kind::tuple));
}

}  // namespace

Value apply(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (const auto x = as_integer(a), y = as_integer(b); x && y) return integers(runtime, op, *x, *y);
  if (const auto x = as_real(a), y = as_real(b); x && y) return reals(runtime, op, *x, *y);
  if (op == Operator::modulo && a.text() != nullptr) {
    return format_percent(runtime, *a.text(), b);
  }
  if (op == Operator::add && a.text() != nullptr && b.text() != nullptr) {
    return join_texts(runtime, *a.text(), *b.text());
  }
  if (op == Operator::multiply && repeatable(a) && as_integer(b)) {
    return repeat(runtime, a, *as_integer(b));
  }
  if (op == Operator::multiply && repeatable(b) && as_integer(a)) {
    return repeat(runtime, b, *as_integer(a));
  }
  const Sequence *x = a.sequence(), *y = b.sequence();
  if (op == Operator::add && repeatable(a) && x != nullptr && y != nullptr && x->kind == y->kind) {
    runtime.charge((x->items.size() + y->items.size()) * sizeof(Value));
    std::vector<Value> items = x->items;
    items.insert(items.end(), y->items.begin(), y->items.end());
    return runtime.sequence(x->kind, std::move(items));
  }
  refuse(runtime, op, a, b);
}

Value negate(Runtime& runtime, const Value& value) {
  if (const double* real = value.as<double>()) return -*real;
  if (as_integer(value)) return apply(runtime, Operator::subtract, Value(Integer{0}), value);
  if (const Undefined* undefined = value.as<Undefined>()) runtime.fail(std::string(undefined->why));
  runtime.fail(std::string("bad operand type for unary -: '") + type_name(value) + "'");
}

namespace {

// Clips a bound of a slice to a sequence of `size` items, as Python does.
int64_t clip(Integer bound, Integer size, bool backwards) {
  if (bound < 0) bound += size;
  const Integer low = backwards ? -1 : 0, high = backwards ? size - 1 : size;
  return static_cast<int64_t>(std::clamp(bound, low, high));
}

bool is_bound(const Value& value) {
  return value.none() || as_integer(value).has_value();
}

}  // namespace

Value item_of(Runtime& runtime, const Value& value, const Value& key) {
  const auto missing = [&] {
    const std::string shown = key.text() != nullptr || as_integer(key) ? repr(runtime, key) : "...";
    return runtime.undefined(type_name(value) + " object has no element " + shown);
  };
  if (const Undefined* undefined = value.as<Undefined>()) runtime.fail(std::string(undefined->why));
  if (const Dict* dict = value.dict()) {
    const Sequence* sequence = key.sequence();
    if (key.dict() != nullptr || (sequence != nullptr && sequence->kind == Sequence::Kind::list)) {
      return missing();
    }
    const Value* found = runtime.find(*dict, key);
    return found != nullptr ? *found : missing();
  }
  const auto index = as_integer(key);
  if (!index) return missing();
  if (const Text* text = value.text()) {
    runtime.pass(text->bytes.size());
    const auto size = static_cast<Integer>(count_characters(text->bytes));
    const Integer at = *index < 0 ? *index + size : *index;
    if (at < 0 || at >= size) return missing();
    const size_t offset = offset_of(text->bytes, static_cast<size_t>(at));
    return Text{first_character(text->bytes.substr(offset)), text->markup};
  }
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr || !sequence->indexed()) return missing();
  const auto size = static_cast<Integer>(sequence->items.size());
  const Integer at = *index < 0 ? *index + size : *index;
  return at < 0 || at >= size ? missing() : sequence->items[static_cast<size_t>(at)];
}

Value slice_of(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
               const Value& step) {
  const Text* text = value.text();
  const Sequence* sequence = value.sequence();
  if (const Undefined* undefined = value.as<Undefined>()) runtime.fail(std::string(undefined->why));
  if ((text == nullptr && (sequence == nullptr || !sequence->indexed())) || !is_bound(start) ||
      !is_bound(stop) || !is_bound(step)) {
    return runtime.undefined(type_name(value) + " object has no such slice");
  }
  constexpr Integer kFar = Integer{1} << 64;  // every sequence ends before it
  const Integer by = std::clamp(as_integer(step).value_or(1), -kFar, kFar);
  if (by == 0) runtime.fail("slice step cannot be zero");
  const auto size =
      static_cast<Integer>(text != nullptr ? length(runtime, value) : sequence->items.size());
  const bool backwards = by < 0;
  const int64_t from = start.none() ? (backwards ? static_cast<int64_t>(size) - 1 : 0)
                                    : clip(*as_integer(start), size, backwards);
  const int64_t to = stop.none() ? (backwards ? -1 : static_cast<int64_t>(size))
                                 : clip(*as_integer(stop), size, backwards);
  if (text != nullptr && by == 1) {
    if (from >= to) return Text{{}, text->markup};
    const size_t begin = offset_of(text->bytes, static_cast<size_t>(from));
    const std::string_view rest = text->bytes.substr(begin);
    return Text{rest.substr(0, offset_of(rest, static_cast<size_t>(to - from))), text->markup};
  }
  const std::vector<Value> all = text != nullptr ? iterate(runtime, value) : std::vector<Value>();
  const std::vector<Value>& from_items = text != nullptr ? all : sequence->items;
  std::vector<Value> items;
  for (Integer at = from; backwards ? at > to : at < to; at += by) {
    items.push_back(from_items[static_cast<size_t>(at)]);
  }
  runtime.charge(items.size() * sizeof(Value));
  runtime.step(items.size() / 16);
  if (text == nullptr) {
    const Value slice = runtime.sequence(sequence->kind, std::move(items));
    slice.sequence()->start = sequence->start + from * sequence->step;
    slice.sequence()->stop = sequence->start + to * sequence->step;
    slice.sequence()->step = sequence->step * by;
    return slice;
  }
  Builder out(runtime);
  for (const Value& item : items)
    out.append(item.text()->bytes);
  return out.value(text->markup);
}

}  // namespace walsh::jinja
