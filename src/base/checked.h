// Computes with sizes that come from files. Every overflow throws an Error instead of wrapping
// around.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "walsh/error.h"

namespace walsh {

// Returns a * b; throws bad_input naming `where` on overflow.
inline uint64_t checked_mul(uint64_t a, uint64_t b, std::string_view where) {
  uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) {
    throw Error(ErrorCode::bad_input, std::string(where), "size computation overflows");
  }
  return r;
}

// Returns a + b; throws bad_input naming `where` on overflow.
inline uint64_t checked_add(uint64_t a, uint64_t b, std::string_view where) {
  uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) {
    throw Error(ErrorCode::bad_input, std::string(where), "size computation overflows");
  }
  return r;
}

// Returns the smallest multiple of `alignment` (> 0) that is >= a; throws bad_input on overflow.
inline uint64_t checked_align(uint64_t a, uint64_t alignment, std::string_view where) {
  return checked_add(a, alignment - 1, where) / alignment * alignment;
}

// Converts between integer types; throws bad_input naming `where` if the value does not fit.
template <typename To, typename From>
To narrow(From value, std::string_view where) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  const To result = static_cast<To>(value);
  if (static_cast<From>(result) != value || ((result < To{}) != (value < From{}))) {
    throw Error(ErrorCode::bad_input, std::string(where), "value out of range");
  }
  return result;
}

// Returns how many parts of size b (> 0) cover a >= 0, for sizes that are known to be small enough.
template <typename Int>
constexpr Int ceil_div(Int a, std::type_identity_t<Int> b) {
  return (a + b - 1) / b;
}

// Returns the smallest multiple of `alignment` >= a, for sizes that are known to be small enough.
constexpr int64_t round_up(int64_t a, int64_t alignment) {
  return ceil_div(a, alignment) * alignment;
}

}  // namespace walsh
