// Unrolls loops with a constant count at compile time, so that an array indexed by the counter
// stays in registers.
#pragma once

#include <type_traits>
#include <utility>

namespace walsh::detail {

#define WALSH_INLINE __attribute__((always_inline))

// Calls body(integral_constant<int, 0>{}) ... body(integral_constant<int, Count - 1>{}). The body
// must be declared WALSH_INLINE as well.
template <int Count, typename Body>
WALSH_INLINE inline void unroll(const Body& body) {
  [&]<int... I>(std::integer_sequence<int, I...>) WALSH_INLINE {
    (body(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, Count>{});
}

}  // namespace walsh::detail
