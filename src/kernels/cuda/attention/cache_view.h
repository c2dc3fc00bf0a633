// What both attention kernels are told about the cache, and the shape of decoding's launches.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention.h"

namespace walsh::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr int kMaxSplits = 256;  // parts of a row
inline constexpr int kLeastBlocks = 3, kMostBlocks = 5;
inline constexpr int kTileHeads = 8;  // query heads of a cache head that a block takes together

// The cache of one layer and the pages of its sequences.
struct CacheView {
  const uint16_t* keys = nullptr;
  const uint16_t* values = nullptr;
  int kv_heads = 0, head_dim = 0;
  const int32_t* pages = nullptr;
  int64_t per_sequence = 0;
};

// Where parts of rows meet; the grid is x over parts, y over tiles of heads, z over rows.
struct PartsArgs {
  float* partials = nullptr;
  int32_t* arrived = nullptr;
  int heads = 0, head_dim = 0;
  float scale = 1;               // of logits in base 2
  const float* sinks = nullptr;  // [heads], AttentionRows
};

// A cap of logits, of products before they are scaled, so that the softmax behind it does not know:
// a product s becomes cap / scale * tanh(s * scale / cap).
struct LogitCap {
  float power = 0;    // tanh(..) = 1 - 2 / (2^(power * s) + 1); 0: there is no cap
  float largest = 0;  // cap / scale
};

namespace detail {

LogitCap logit_cap(const AttentionRows& call);

// Throws internal for a call that the kernels do not read.
CacheView cache_view(const AttentionCall& call);

// Tiles of the query heads that read one cache head.
int head_tiles(int heads, int kv_heads);

// Blocks that share the positions of one row and up to 8 of its heads, of a kernel of which
// `per_processor` blocks, kLeastBlocks to kMostBlocks, run on a multiprocessor.
int attention_splits(int64_t m, int heads, int kv_heads, int per_processor, int64_t reach);

}  // namespace detail
}  // namespace walsh::cuda
