// Products by lookup need no decoded weights. This defines the content of a group's tables,
// which all instruction sets share. ref/product_lookup.cpp is the specification.
//
// Engine 1: for each vector v of four activations a (columns v, v + 4, v + 8, v + 12 of 16) a table
// of its products with all entries,
//   T[p] = sum over i of entry[p][i] * a[i],
// saturated to 16 bits. Engine 2: a table of signed residuals,
//   S[b] = residual * sum over i of (bit i of b ? -a : a).
// A group is at most 128 columns with one scale. Both tables are rounded to int8 with one step:
//   multiplier = min(32767, floor(kTop * 2^15 / largest)),
//   step = 2^15 / multiplier (0 for zeros), T8 = (T * multiplier + 2^14) >> 15, the same for S8,
// with largest the maximum of max |T| + max |S| over the vectors, so that T8 + S8 fits in int8. A
// row adds up T8[pointer] + S8[signs] of the vectors of the group and multiplies the sum by its
// scale. Each entry is off by at most half a step.
#pragma once

#include <cstdint>

#include "codec/product/panels.h"
#include "codec/product/product.h"

namespace walsh::detail {

inline constexpr int kTableTop = 126;
inline constexpr int kGroupVectors = 32;  // A group has at most this many vectors.
inline constexpr int kSignSums = 16;

constexpr int table_multiplier(int largest) {
  if (largest == 0) return 0;
  return std::min(32767, kTableTop * 32768 / largest);
}
constexpr float table_step(int multiplier) {
  return multiplier == 0 ? 0.0f : 32768.0f / static_cast<float>(multiplier);
}

// Returns the first column of a vector of a group. The vector's other columns follow at a distance
// of four.
constexpr int vector_column(int vector) {
  return vector / 4 * 16 + vector % 4;
}

}  // namespace walsh::detail
