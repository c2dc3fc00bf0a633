// Says over which groups of columns matmuls sum integers. All instruction sets share these.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/unroll.h"
#include "codec/product/panels.h"
#include "codec/scalar/panels.h"
#include "codec/trellis/panels.h"
#include "kernels/ops.h"

namespace walsh::detail {

// This many columns are summed before adding to the total.
inline constexpr int64_t kF32Block = 128;
inline constexpr int64_t kQuadColumns = 4;  // A 32-bit lane of int8 has this many columns.

// Returns the factor of the integer levels of a matrix.
WALSH_INLINE inline float level_unit(const PanelMatrix& w) {
  if (w.product) return w.product->unit;
  return w.trellis ? w.trellis->unit : w.code->unit;
}

// Returns how many columns are summed in integers before the sum is scaled and added to the total.
constexpr int64_t flush_columns(const PanelMatrix& w, const ActivationsI8& x) {
  return std::min({w.group, int64_t{x.group}, w.cols});
}

// Returns the same for a trellis, from column c on: at most 128 columns, and never across a column
// block.
constexpr int64_t trellis_flush_columns(const PanelMatrix& w, const ActivationsI8& x, int64_t c) {
  const uint64_t rest = static_cast<uint64_t>(std::min<int64_t>(w.cols - c, kF32Block));
  return std::min<int64_t>(x.group, static_cast<int64_t>(std::bit_floor(rest)));
}

}  // namespace walsh::detail
