// Defines panels of product codes: codes[panel][unit of 32 columns][word 0..2][row 0..15], with the
// words as stored (product.h).
#pragma once

#include "codec/panels.h"
#include "codec/product/product.h"

namespace walsh::detail {

// A row of a unit has this many words; the level of a weight comes from the panel's `words`.
inline constexpr int kProductWords = 3;
inline int product_level_i8(const PanelMatrix& w, const uint32_t* words, int lane, int64_t col) {
  const uint32_t* unit = words + col / kUnitColumns * kProductWords * kPanelRows + lane;
  const int byte = 8 * product_vector(col);
  const uint32_t pointer = unit[col % kUnitColumns / 16 * kPanelRows] >> byte & 0xffu;
  const uint32_t negative = unit[2 * kPanelRows] >> (byte + col % kUnitColumns / 4) & 1u;
  const int upper =
      w.codebook.data()[static_cast<int>(pointer) * kProductValues + product_value(col)];
  return negative != 0 ? upper - 2 * w.product->residual : upper;
}

PanelMatrix pack_product(const Tensor& tensor, int pass);
void unpack_product(const PanelMatrix& w, std::span<std::byte> codes);

}  // namespace walsh::detail
