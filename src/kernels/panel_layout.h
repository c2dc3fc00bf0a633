// Matmuls sum integers over these groups of columns. All instruction sets share them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "codec/product/panels.h"
#include "codec/scalar/panels.h"
#include "codec/trellis/panels.h"
#include "kernels/ops.h"

namespace walsh::detail {

inline constexpr int64_t kF32Block = 128;   // columns summed before adding to the total
inline constexpr int64_t kQuadColumns = 4;  // columns of a 32-bit lane of int8

// Returns the columns that are summed in integers before the sum is scaled and added to the total.
constexpr int64_t flush_columns(const PanelMatrix& w, const ActivationsI8& x) {
  return std::min({w.group, int64_t{x.group}, w.cols});
}

// Does so for a trellis, from column c on: at most 128 columns, never across a column block.
constexpr int64_t trellis_flush_columns(const PanelMatrix& w, const ActivationsI8& x, int64_t c) {
  const uint64_t rest = static_cast<uint64_t>(std::min<int64_t>(w.cols - c, kF32Block));
  return std::min<int64_t>(x.group, static_cast<int64_t>(std::bit_floor(rest)));
}

}  // namespace walsh::detail
