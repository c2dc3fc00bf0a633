// Where a weight lies inside a panel, and the groups of columns over which matmuls sum integers.
// Shared by packing and by all instruction sets.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "formats/product.h"
#include "formats/trellis.h"
#include "kernels/ops.h"

namespace walsh::detail {

inline constexpr int64_t kUnitColumns = 32;  // columns of one unit of packed codes
inline constexpr int64_t kF32Block = 128;    // columns summed before adding to the total
inline constexpr int64_t kQuadColumns = 4;   // columns of a 32-bit lane of int8

// 32-bit words of codes in one panel.
constexpr int64_t panel_words(const PanelMatrix& w, int bits) {
  return w.cols / kUnitColumns * bits * kPanelRows;
}

// Units of one panel.
constexpr int64_t panel_units(const PanelMatrix& w) {
  return w.cols / kUnitColumns;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Columns that are summed in integers before the sum is scaled and added to the total.
constexpr int64_t flush_columns(const PanelMatrix& w, const ActivationsI8& x) {
  return std::min({w.group, int64_t{x.group}, w.cols});
}

// The same for a trellis, from column c on: at most 128 columns, never across a column block.
constexpr int64_t trellis_flush_columns(const PanelMatrix& w, const ActivationsI8& x, int64_t c) {
  const uint64_t rest = static_cast<uint64_t>(std::min<int64_t>(w.cols - c, kF32Block));
  return std::min<int64_t>(x.group, static_cast<int64_t>(std::bit_floor(rest)));
}

// The lane of a panel's row in a trellis, and the inverse.
constexpr int trellis_lane(int row) {
  return 2 * (row % 8) + row / 8;
}
constexpr int trellis_row(int lane) {
  return lane / 2 + 8 * (lane % 2);
}

// A trellis's step, for which kernels are compiled: bits per step of two weights, and the rule that
// makes levels.
template <int Bits, TrellisRule Rule>
struct TrellisSteps {
  static constexpr TrellisRule kRule = Rule;
  static constexpr int kBits = Bits;
  // Words of a unit, which is two tiles.
  static constexpr int kUnitWords = kTileWeights * Bits / 32;
};

// Calls body(Steps{}) with the member of `Steps` that matches the code. Returns false if none does.
template <typename... Steps, typename Body>
bool with_steps_among(const TrellisCode& code, const Body& body) {
  const auto offer = [&](auto steps) {
    if (code.rule != steps.kRule || code.values != 2 || code.step_bits != steps.kBits) return false;
    body(steps);
    return true;
  };
  return (offer(Steps{}) || ...);
}

// The steps of all codes that kernels support.
template <typename Body>
bool with_trellis_steps(const TrellisCode& code, const Body& body) {
  constexpr auto kBytes = TrellisRule::bytes, kQuantiles = TrellisRule::quantiles;
  return with_steps_among<TrellisSteps<4, kBytes>, TrellisSteps<5, kBytes>, TrellisSteps<6, kBytes>,
                          TrellisSteps<7, kBytes>, TrellisSteps<8, kBytes>,
                          TrellisSteps<4, kQuantiles>, TrellisSteps<5, kQuantiles>,
                          TrellisSteps<6, kQuantiles>, TrellisSteps<7, kQuantiles>,
                          TrellisSteps<8, kQuantiles>>(code, body);
}

inline const std::byte* trellis_tile(const PanelMatrix& w, int64_t panel, int64_t col) {
  const int64_t tile = panel * (w.cols / kTileCols) + col / kTileCols;
  return reinterpret_cast<const std::byte*>(w.codes.data()) + tile * tile_bytes(*w.trellis);
}

// Words of a unit of product codes, and the level of a weight from the panel's `words`.
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

// Nibble p of a file word moves to the low half of byte p (p < 4) or the high half of byte p - 4.
constexpr uint32_t spread_nibbles(uint32_t four) {
  four = (four | four << 8) & 0x00ff00ffu;
  return (four | four << 4) & 0x0f0f0f0fu;
}
constexpr uint32_t permute_nibbles(uint32_t word) {
  return spread_nibbles(word & 0xffffu) | spread_nibbles(word >> 16) << 4;
}
// Shift that brings nibble p of a file word to bit 0 of the permuted word.
constexpr int nibble_shift(int p) {
  return p < 4 ? 8 * p : 8 * (p - 4) + 4;
}

}  // namespace walsh::detail
