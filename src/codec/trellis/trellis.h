// Defines the layout of trellis formats (docs/formats/tc.md) and what a state means: the
// specification that encoder and kernels share.
//
// A tensor is cut into tiles of 16 rows x 16 columns. The 256 weights of a tile form one cyclic
// sequence of 256 / V steps; step j appends k bits to the state, which is the last L bits read.
// Bits of step j stand at k (steps - 1 - j) of the tile's little-endian bit stream, so a state is
// one contiguous, cyclic field of it. Arrays of a [rows, cols] tensor, K = padded columns:
//   codes       [ceil(rows / 16)][K / 16][tile_bytes]
//   scales      fp16 [rows], or [rows][column_blocks] with block_scales
//   col_scales  fp16 [column_blocks], without block_scales
//   value = (scale of the row * scale of its column block) * level of the state
// Column blocks are 256 columns, the rest of a row in descending powers of two down to 32.
//
// The codes that are written make two weights of one product per step without a look-up, or with
// one in 128 bytes: bytes of the product are the operands of integer dot products.
//
// Source: bit-shift trellises with computed codes are QTIP's (Tseng et al. 2024); tiles that carry
// the sequence are EXL3's (turboderp, 2025).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "codec/format.h"

namespace walsh {

inline constexpr int kTileRows = 16, kTileCols = 16;
inline constexpr int kTileWeights = kTileRows * kTileCols;
inline constexpr int64_t kColumnBlock = 256;
inline constexpr int kMostStateBits = 16;

constexpr int64_t tile_rows(int64_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}
constexpr int tile_steps(const TrellisCode& code) {
  return kTileWeights / code.values;
}
constexpr int64_t tile_bytes(const TrellisCode& code) {
  return tile_steps(code) * code.step_bits / 8;
}

// Returns the position of a weight in the sequence of its tile. Eight consecutive weights are four
// columns of rows g and g + 8.
constexpr int tile_position(int row, int col) {
  return 32 * (row % 8) + 8 * (col / 4) + 4 * (row / 8) + col % 4;
}

constexpr int64_t column_blocks(int64_t padded) {
  return padded / kColumnBlock + std::popcount(static_cast<uint64_t>(padded % kColumnBlock));
}
// Returns which column block a column is in. Tail blocks shrink by descending powers of two, one
// for every bit of the tail's length.
constexpr int64_t column_block(int64_t col, int64_t padded) {
  const int64_t tail = padded % kColumnBlock;
  int64_t block = col / kColumnBlock;
  if (block < padded / kColumnBlock) return block;
  int64_t left = col % kColumnBlock;
  for (int64_t size = kColumnBlock / 2; size > 0; size /= 2) {
    if ((tail & size) == 0) continue;
    if (left < size) break;
    left -= size;
    ++block;
  }
  return block;
}

// Returns the state of step `step` of a tile.
uint32_t trellis_state(const TrellisCode& code, const std::byte* tile, int step);
// Sets a tile from the states of its steps, of which only the lowest step_bits matter.
void pack_tile(const TrellisCode& code, const uint16_t* states, std::byte* tile);

constexpr int trellis_level_i8(const TrellisCode& code, uint32_t state, int value) {
  const uint32_t product = state * code.multiplier;
  const uint32_t low = product >> (8 * value) & 127u, high = product >> (16 + 8 * value) & 127u;
  if (code.rule == TrellisRule::bytes) return static_cast<int>(low + high) - 127;
  if (code.rule == TrellisRule::quantiles) return code.table[high];
  const uint32_t index = product >> (32 - code.table_bits);
  return code.table[index * static_cast<uint32_t>(code.values) + static_cast<uint32_t>(value)];
}
constexpr float trellis_level(const TrellisCode& code, uint32_t state, int value) {
  return code.unit * static_cast<float>(trellis_level_i8(code, state, value));
}

}  // namespace walsh
