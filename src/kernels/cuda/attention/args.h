// Declares the arguments of attention kernels, whatever they read keys and values from, and the
// shape of decode launches.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention.h"

namespace walsh::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr int kMaxSplits = 256;  // most parts of a row
inline constexpr int kLeastBlocks = 3, kMostBlocks = 5;
inline constexpr int kTileHeads = 8;  // query heads of a KV head that a block takes together

// A logit cap is applied to unscaled products, so that the softmax need not know of it: a product s
// becomes cap / scale * tanh(s * scale / cap).
struct LogitCap {
  float power = 0;    // tanh(..) = 1 - 2 / (2^(power * s) + 1); 0: no cap
  float largest = 0;  // cap / scale
};

// Holds the options of attention as kernels take them; options.cuh has what each of them does.
struct AttentionRule {
  int window = 0, chunk = 0;     // AttentionOptions
  float scale = 1;               // of products, to logits in base 2
  const float* sinks = nullptr;  // [heads], AttentionRows
  LogitCap cap;
};

// Describes the fp16 cache of one layer and the pages of its sequences.
struct CacheView {
  const uint16_t* keys = nullptr;
  const uint16_t* values = nullptr;
  int kv_heads = 0, head_dim = 0;
  const int32_t* pages = nullptr;
  int64_t per_sequence = 0;
};

// Describes the rows of a launch: their queries, results and options.
struct RowArgs {
  RowPlaces rows;
  const float* q = nullptr;
  int64_t ldq = 0;
  float* out = nullptr;
  int64_t ldo = 0;
  int m = 0;
  int heads = 0, head_dim = 0;
  int value_dim = 0;  // values of a head of results
  int group = 0;      // query heads of a KV head
  AttentionRule rule;
};

// The grid is x over the parts of a row's positions, y over tiles of heads, z over rows.
struct DecodeArgs : RowArgs {
  int tiles = 0;  // of kTileHeads heads, of a group
  // The parts of rows are combined here, in AttentionScratch.
  float* partials = nullptr;
  int32_t* arrived = nullptr;
};

namespace detail {

// Throws internal for options that no kernel has.
AttentionRule attention_rule(const AttentionOptions& options, const float* sinks);

// These throw internal for calls that kernels do not support.
RowArgs row_args(const AttentionRows& call, int kv_heads, int head_dim);
DecodeArgs decode_args(const AttentionRows& call, int kv_heads, int head_dim,
                       const AttentionScratch& scratch);
CacheView cache_view(const AttentionCall& call);

// Returns the number of tiles of the query heads of one KV head.
int head_tiles(int heads, int kv_heads);

// Returns the number of blocks that share the positions of one row and up to 8 of its heads, for a
// kernel of which `per_processor` blocks (kLeastBlocks to kMostBlocks) run on a multiprocessor.
int attention_splits(int64_t m, int heads, int kv_heads, int per_processor, int64_t reach);

}  // namespace detail
}  // namespace walsh::cuda
