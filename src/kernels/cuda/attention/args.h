// Declares the arguments of attention kernels, whatever they read keys and values from, and the
// shape of decode launches.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention.h"

namespace walsh::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr int kMaxSplits = 256;  // A row has at most this many parts.
inline constexpr int kLeastBlocks = 3, kMostBlocks = 5;
inline constexpr int kTileHeads = 8;  // A block takes this many query heads of a KV head together.

// Describes a logit cap. It is applied to unscaled products, so that the softmax need not know of
// it: a product s becomes cap / scale * tanh(s * scale / cap).
struct LogitCap {
  float power = 0;    // tanh(..) is 1 - 2 / (2^(power * s) + 1); 0: no cap.
  float largest = 0;  // It is cap / scale.
};

// Holds the options of attention as kernels take them. options.cuh says what each of them does.
struct AttentionRule {
  int window = 0, chunk = 0;     // AttentionOptions explains them.
  float scale = 1;               // It turns products into logits in base 2.
  const float* sinks = nullptr;  // They are [heads], as in AttentionRows.
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
  int value_dim = 0;  // A head of results has this many values.
  int group = 0;      // A KV head has this many query heads.
  AttentionRule rule;
};

// Describes a decode launch. The grid has parts of a row's positions in x, tiles of heads in y, and
// rows in z.
struct DecodeArgs : RowArgs {
  int tiles = 0;  // A group has this many tiles of kTileHeads heads.
  // The parts of rows are combined in this memory of AttentionScratch.
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

// Returns how many tiles the query heads of one KV head make.
int head_tiles(int heads, int kv_heads);

// Returns how many blocks share the positions of one row and up to 8 of its heads, for a kernel of
// which `per_processor` blocks (kLeastBlocks to kMostBlocks) run on a multiprocessor.
int attention_splits(int64_t m, int heads, int kv_heads, int per_processor, int64_t reach);

}  // namespace detail
}  // namespace walsh::cuda
