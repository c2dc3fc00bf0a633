// The cache as attention kernels see it, and the shape of decode launches.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention.h"

namespace walsh::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr int kMaxSplits = 256;  // most parts of a row
inline constexpr int kLeastBlocks = 3, kMostBlocks = 5;
inline constexpr int kTileHeads = 8;  // query heads of a KV head that a block takes together

// The cache of one layer and the pages of its sequences.
struct CacheView {
  const uint16_t* keys = nullptr;
  const uint16_t* values = nullptr;
  int kv_heads = 0, head_dim = 0;
  const int32_t* pages = nullptr;
  int64_t per_sequence = 0;
};

// Arguments for combining parts of rows; the grid is x over parts, y over tiles of heads, z over
// rows.
struct PartsArgs {
  float* partials = nullptr;
  int32_t* arrived = nullptr;
  int heads = 0, head_dim = 0;
  float scale = 1;               // of logits in base 2
  const float* sinks = nullptr;  // [heads], AttentionRows
};

// A logit cap applied to unscaled products, so that the softmax need not know of it: a product s
// becomes cap / scale * tanh(s * scale / cap).
struct LogitCap {
  float power = 0;    // tanh(..) = 1 - 2 / (2^(power * s) + 1); 0: no cap
  float largest = 0;  // cap / scale
};

namespace detail {

LogitCap logit_cap(const AttentionRows& call);

// Throws internal for a call that the kernels do not support.
CacheView cache_view(const AttentionCall& call);

// Tiles of the query heads of one KV head.
int head_tiles(int heads, int kv_heads);

// Number of blocks that share the positions of one row and up to 8 of its heads, for a kernel of
// which `per_processor` blocks (kLeastBlocks to kMostBlocks) run on a multiprocessor.
int attention_splits(int64_t m, int heads, int kv_heads, int per_processor, int64_t reach);

}  // namespace detail
}  // namespace walsh::cuda
