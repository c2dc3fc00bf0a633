// Describes keys and values that are stored as codes, in the form that attention reads (cache/cuda
// has what writes them): tiles of 16 positions in the order of tensor core operands
// (coded_tile.cuh), four of them to a page. Positions that some query still sees as fp16 are rows
// of a ring per sequence and head; the first ones of a sequence are kept beside it. All of them are
// rotated.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention.h"

namespace walsh::cuda {

inline constexpr int kCodeBundle = 32;     // positions that are encoded together
inline constexpr int kFirstPositions = 4;  // of a sequence, which stay fp16
inline constexpr int kCacheTile = 16;      // positions of a tile
inline constexpr int kPageTiles = kPageTokens / kCacheTile;

// Returns the bytes of a tile's codes.
constexpr int tile_code_bytes(int head_dim, int bits) {
  return kCacheTile * head_dim * bits / 8;
}

// Holds a code's levels as fp16 in two byte tables, indexed by the stored nibble. With 16 levels
// the lower byte depends only on the lower 3 bits. Codes of 8 bits need none: level = byte - 128.
struct HalfLevels {
  uint32_t high[4] = {}, low[2] = {};
};

// Holds int8 numbers which times `unit` are about the same levels, for products of integers.
struct ByteLevels {
  uint32_t words[4] = {};
  float unit = 1;
};

// Describes the pages of keys or of values.
struct CodedPages {
  int bits = 0;                    // per code: 2, 3, 4 or 8; 0: stored as fp16
  int groups = 0;                  // scales per vector; 0 for fp16
  int tile_bytes = 0;              // of codes, then scales
  int block = 0;                   // of the rotation; 0: not rotated
  const float* factors = nullptr;  // [head_dim] sign / sqrt(block)
  float factor = 1;                // without the sign
  HalfLevels levels;
  ByteLevels byte_levels;
  unsigned char* tiles = nullptr;  // [page][kv_head][kPageTiles][tile_bytes]
  uint16_t* ring = nullptr;        // fp16 [sequence][kv_head][ring][head_dim]
  uint16_t* leading = nullptr;     // fp16 [sequence][kv_head][kFirstPositions][head_dim]
};

// Holds what keys and values have in common.
struct CodedShape {
  // This offset was subtracted from stored keys: fp16 values as float
  // [sequence][kv_head][head_dim], rotated; null if keys are stored as fp16.
  float* key_offsets = nullptr;
  int kv_heads = 0, head_dim = 0;
  uint32_t signs[4] = {};          // bit i of word b: the rotations negate column 32 b + i < 128
  int ring = 0;                    // rows; position p is row p % ring
  int window = 0;                  // latest positions that are at least kept as fp16
  const int32_t* pages = nullptr;  // as PageTable
  int64_t per_sequence = 0;
  // This many positions are read as stored, whatever the window: [sequence].
  const int32_t* kept = nullptr;
};

// Returns the end of the positions that a query at `position` reads as stored, of which `kept` are
// read so whatever the window.
constexpr int stored_positions(int kept, int position, int window) {
  const int left = position < window ? 0 : (position - window) / kCodeBundle * kCodeBundle;
  return kept > left ? kept : left;
}

}  // namespace walsh::cuda
