// Implements tests, which are the names after `is`.
#include "text/jinja/format.h"
#include "text/jinja/functions.h"
#include "text/jinja/loop.h"
#include "text/jinja/operations.h"
#include "text/jinja/printing.h"

namespace walsh::jinja {
namespace {

using Holds = bool (*)(const Value&);

// Makes a test without parameters.
template <Holds holds>
Value plain(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "the test", arguments, {});
  return holds(value);
}

bool is_defined(const Value& value) {
  return !value.undefined();
}
bool is_undefined(const Value& value) {
  return value.undefined();
}
bool is_none(const Value& value) {
  return value.none();
}
bool is_boolean(const Value& value) {
  return value.is<bool>();
}
bool is_true(const Value& value) {
  return value.is<bool>() && truth(value);
}
bool is_false(const Value& value) {
  return value.is<bool>() && !truth(value);
}
bool is_integer(const Value& value) {
  return value.is<Integer>();
}
bool is_float(const Value& value) {
  return value.is<double>();
}
bool is_number(const Value& value) {
  return as_real(value).has_value();
}
bool is_string(const Value& value) {
  return value.text() != nullptr;
}
bool is_mapping(const Value& value) {
  return value.dict() != nullptr;
}
bool is_escaped(const Value& value) {
  return value.text() != nullptr && value.text()->markup;
}
bool is_callable(const Value& value) {
  return value.callable() != nullptr || value.undefined() ||
         (value.loop() != nullptr && value.loop()->statement != nullptr);
}

bool is_iterable(const Value& value) {
  return value.text() != nullptr || value.dict() != nullptr || value.sequence() != nullptr ||
         value.undefined() || value.loop() != nullptr;
}

// Returns whether the value has a length and items.
bool is_sequence(const Value& value) {
  const Sequence* sequence = value.sequence();
  return value.text() != nullptr || value.dict() != nullptr || value.undefined() ||
         (sequence != nullptr && sequence->indexed());
}

const Value& only(Runtime& runtime, const Arguments& arguments) {
  const auto bound = bind(runtime, "the test", arguments, {"other"});
  if (bound[0] == nullptr) runtime.fail("the test expects an argument");
  return *bound[0];
}

template <int parity>
Value has_parity(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "the test", arguments, {});
  const Value rest = apply(runtime, Operator::modulo, value, Integer{2});
  return equal(runtime, rest, Integer{parity});
}

Value is_divisible(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Value rest = apply(runtime, Operator::modulo, value, only(runtime, arguments));
  return equal(runtime, rest, Integer{0});
}

template <bool up>
Value is_cased(Runtime& runtime, const Value& value, const Arguments&) {
  return all_cased(to_text(runtime, value).bytes, up);
}

Value is_in(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return contains(runtime, only(runtime, arguments), value);
}

Value is_same(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return same(value, only(runtime, arguments));
}

template <bool wanted>
Value is_equal(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return equal(runtime, value, only(runtime, arguments)) == wanted;
}

// `below`, `same` and `above` say whether the test holds for these results of the comparison.
template <bool below, bool same, bool above>
Value is_ordered(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const int order = compare(runtime, value, only(runtime, arguments), below ? "<" : ">");
  return order < 0 ? below : order == 0 ? same : above && order != 2;
}

Value is_filter(Runtime& runtime, const Value& value, const Arguments&) {
  return find_filter(text_argument(runtime, value)) != nullptr;
}

Value is_test(Runtime& runtime, const Value& value, const Arguments&) {
  return find_test(text_argument(runtime, value)) != nullptr;
}

constexpr Function kLess = is_ordered<true, false, false>;
constexpr Function kLessEqual = is_ordered<true, true, false>;
constexpr Function kGreater = is_ordered<false, false, true>;
constexpr Function kGreaterEqual = is_ordered<false, true, true>;

constexpr NamedFunction kTests[] = {
    {"defined", plain<is_defined>},
    {"undefined", plain<is_undefined>},
    {"none", plain<is_none>},
    {"boolean", plain<is_boolean>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"integer", plain<is_integer>},
    {"float", plain<is_float>},
    {"number", plain<is_number>},
    {"string", plain<is_string>},
    {"mapping", plain<is_mapping>},
    {"sequence", plain<is_sequence>},
    {"iterable", plain<is_iterable>},
    {"callable", plain<is_callable>},
    {"escaped", plain<is_escaped>},
    {"odd", has_parity<1>},
    {"even", has_parity<0>},
    {"divisibleby", is_divisible},
    {"upper", is_cased<true>},
    {"lower", is_cased<false>},
    {"in", is_in},
    {"sameas", is_same},
    {"filter", is_filter},
    {"test", is_test},
    {"eq", is_equal<true>},
    {"==", is_equal<true>},
    {"equalto", is_equal<true>},
    {"ne", is_equal<false>},
    {"!=", is_equal<false>},
    {"lt", kLess},
    {"<", kLess},
    {"lessthan", kLess},
    {"le", kLessEqual},
    {"<=", kLessEqual},
    {"gt", kGreater},
    {">", kGreater},
    {"greaterthan", kGreater},
    {"ge", kGreaterEqual},
    {">=", kGreaterEqual},
};

}  // namespace

Function find_test(std::string_view name) {
  return look_up(kTests, name);
}

}  // namespace walsh::jinja
