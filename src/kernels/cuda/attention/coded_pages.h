// Describes keys and values that are stored as codes, as attention reads them; code in cache/cuda
// writes them. Tiles of 16 positions have the order of tensor core operands (coded_tile.cuh), and
// four of them make a page. Positions that some query still sees as fp16 are rows of a ring per
// sequence and head; the first ones of a sequence are kept beside it. All of them are rotated.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention.h"

namespace walsh::cuda {

inline constexpr int kCodeBundle = 32;     // This many positions are encoded together.
inline constexpr int kFirstPositions = 4;  // This many positions of a sequence stay fp16.
inline constexpr int kCacheTile = 16;      // A tile has this many positions.
inline constexpr int kPageTiles = kPageTokens / kCacheTile;

// Returns how many bytes the codes of a tile take.
constexpr int tile_code_bytes(int head_dim, int bits) {
  return kCacheTile * head_dim * bits / 8;
}

// Holds a code's levels as fp16 in two byte tables, indexed by the stored nibble. With 16 levels
// the lower byte depends only on the lower 3 bits. Codes of 8 bits need no tables, because level =
// byte - 128.
struct HalfLevels {
  uint32_t high[4] = {}, low[2] = {};
};

// Holds int8 numbers that are about the same levels when they are multiplied by `unit`, for
// products of integers.
struct ByteLevels {
  uint32_t words[4] = {};
  float unit = 1;
};

// Describes the pages of keys or of values.
struct CodedPages {
  int bits = 0;                    // It is 2, 3, 4 or 8; 0: stored as fp16.
  int groups = 0;                  // A vector has this many scales, fp16 has 0.
  int tile_bytes = 0;              // A tile has codes, then scales.
  int block = 0;                   // The rotation has blocks of this many values; 0: there is none.
  const float* factors = nullptr;  // These are sign / sqrt(block) of each value, [head_dim].
  float factor = 1;                // This is 1 / sqrt(block).
  HalfLevels levels;
  ByteLevels byte_levels;
  unsigned char* tiles = nullptr;  // Its shape is [page][kv_head][kPageTiles][tile_bytes].
  uint16_t* ring = nullptr;        // It is fp16 [sequence][kv_head][ring][head_dim].
  // It is fp16 [sequence][kv_head][kFirstPositions][head_dim].
  uint16_t* leading = nullptr;
};

// Holds what keys and values have in common.
struct CodedShape {
  // This offset was subtracted from stored keys. It has fp16 values as float
  // [sequence][kv_head][head_dim], rotated; it is null if keys are stored as fp16.
  float* key_offsets = nullptr;
  int kv_heads = 0, head_dim = 0;
  // If bit i of word b is set, the rotations negate column 32 b + i < 128.
  uint32_t signs[4] = {};
  int ring = 0;  // The ring has this many rows; position p is row p % ring.
  // At least this many of the latest positions are kept as fp16.
  int window = 0;
  const int32_t* pages = nullptr;  // PageTable explains it.
  int64_t per_sequence = 0;
  // This many positions are read as stored, whatever the window is: [sequence].
  const int32_t* kept = nullptr;
};

// Returns the end of the positions that a query at `position` reads as stored. `kept` of them are
// read so whatever the window is.
constexpr int stored_positions(int kept, int position, int window) {
  const int left = position < window ? 0 : (position - window) / kCodeBundle * kCodeBundle;
  return kept > left ? kept : left;
}

}  // namespace walsh::cuda
