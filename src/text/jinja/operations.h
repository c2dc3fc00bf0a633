// Applies Python's operators to values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text/jinja/runtime.h"

namespace walsh::jinja {

// Returns Python's name of the type, such as "str" or "list".
std::string type_name(const Value& value);

bool truth(const Value& value);

// Computes ==. Numbers and booleans are equal by value, texts by their characters, containers by
// members.
bool equal(Runtime& runtime, const Value& a, const Value& b);
// Returns the hash of a value that can be a dict key. Fails for anything else.
uint64_t hash(Runtime& runtime, const Value& key);
// Returns a negative number, zero or a positive one. Fails for values without an order. The message
// names the operator by `sign`.
int compare(Runtime& runtime, const Value& a, const Value& b, std::string_view sign);
// Computes `is sameas`, which tells whether both are the same object.
bool same(const Value& a, const Value& b);

// Computes `item in container`.
bool contains(Runtime& runtime, const Value& container, const Value& item);

enum class Operator : uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
Value apply(Runtime& runtime, Operator op, const Value& a, const Value& b);
Value negate(Runtime& runtime, const Value& value);

// Returns the integer that a value is (a boolean is one), or nothing.
std::optional<Integer> as_integer(const Value& value);
std::optional<double> as_real(const Value& value);  // it also takes integers and booleans
// Computes int(value), which truncates. Fails for infinity, NaN and values beyond 128 bits.
Integer whole_part(const Runtime& runtime, double value);
// Refuses an integer of more than 128 bits.
[[noreturn]] void fail_too_large(const Runtime& runtime);
// Returns a parameter that must be an integer within int64_t, or `missing` if it is not given.
int64_t integer_argument(const Runtime& runtime, const Value* value, int64_t missing);
// Returns a parameter that must be a text.
std::string_view text_argument(const Runtime& runtime, const Value& value);

// Computes len(). Fails for values without a length.
size_t length(Runtime& runtime, const Value& value);
// Returns the members in the order of a for loop, and consumes an iterator. Fails for values that
// are not iterable.
std::vector<Value> iterate(Runtime& runtime, const Value& value);

// Returns value[key], which is undefined if there is no such item. Attributes are not tried.
Value item_of(Runtime& runtime, const Value& value, const Value& key);
// Returns value[start:stop:step]; bounds that are nullptr or None count as omitted.
Value slice_of(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
               const Value& step);

}  // namespace walsh::jinja
