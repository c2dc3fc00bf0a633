// Computes attention over a paged KV cache, in decode and in prefill, and holds the memory of the
// cache.
//
// A page holds kPageTokens positions of one sequence for all heads of one layer; a page table on
// the device is shared by all layers. Rows of a launch find their sequence and position in device
// arrays, so that a recorded launch can be replayed for others.
//
// Sources: FlashAttention-2 (Dao 2023) for the online softmax in registers, Flash-Decoding (Dao et
// al. 2023) for splitting a sequence over blocks, PagedAttention (Kwon et al. 2023) for the pages.
#pragma once

#include <cstdint>

#include "arch/attention_options.h"
#include "base/cuda/device.h"

namespace walsh::cuda {

inline constexpr int kPageTokens = 64;
inline constexpr int kMaxHeadDim = 512;
// A shared key, beside a latent, has at most this many values.
inline constexpr int kMaxSharedKey = 64;

// Holds the cache of one layer, fp16 [page][kv_head][kPageTokens][head_dim]. If it is a cache of
// latents, they are the values, and shared keys are the keys.
struct KvPool {
  int kv_heads = 0;
  int head_dim = 0;  // It is a multiple of 8, at most kMaxHeadDim.
  // Values have this size, which differs from head_dim only in a pool of latents.
  int value_dim = 0;
  int64_t pages = 0;
  Buffer keys, values;

  KvPool() = default;
  // Allocates the pool. Throws internal for a head_dim that the kernels do not support, and limit
  // if memory runs out.
  KvPool(int kv_heads, int head_dim, int64_t pages) : KvPool(kv_heads, head_dim, head_dim, pages) {}
  KvPool(int kv_heads, int head_dim, int value_dim, int64_t pages);
  static uint64_t bytes(int kv_heads, int head_dim, int64_t pages);

  // Copies page `from` to page `to`.
  void copy_page(int64_t from, int64_t to, Stream stream) const;
};

// Says which pages sequences have: page pages[s * per_sequence + j], on the device, has positions
// [64 j, 64 j + 64) of sequence s.
struct PageTable {
  const int32_t* pages = nullptr;
  int64_t per_sequence = 0;
};

// Says where a launch's m rows are, in arrays on the device: row t is position positions[t] of
// sequence sequences[t].
struct RowPlaces {
  const int32_t* positions = nullptr;
  const int32_t* sequences = nullptr;

  RowPlaces from(int64_t row) const { return {positions + row, sequences + row}; }
};

// Describes attention: out[t][h] = softmax(cap(scale * q[t][h] K^T)) V over the positions that row
// t sees from its own position, by the options. Query head h reads KV head h / (heads / kv_heads).
// Sums are float32; all kernels except attend_decode of an fp16 cache round queries and softmax
// weights to fp16. Cache content beyond a row's position has no effect, NaN included.
struct AttentionRows {
  RowPlaces rows;
  int64_t m = 0;
  int heads = 0;  // It is a multiple of kv_heads.
  AttentionOptions options;
  // Each head's softmax has an extra logit without a value, which is neither scaled nor capped:
  // [heads] on the device. Null means that there is none.
  const float* sinks = nullptr;
  // It has the shape [m][ldq], with heads * head_dim values each; ldq is even, and q is 8-byte
  // aligned.
  const float* q = nullptr;
  int64_t ldq = 0;
  float* out = nullptr;  // Its shape is [m][ldo].
  int64_t ldo = 0;

  AttentionRows part(int64_t begin, int64_t end) const {
    AttentionRows rest = *this;
    rest.rows = rows.from(begin);
    rest.m = end - begin;
    rest.q += begin * ldq;
    rest.out += begin * ldo;
    return rest;
  }
  // Returns the call for `count` query heads from `first` on, which have these numbers of values.
  AttentionRows part_of_heads(int first, int count, int key_dim, int value_dim) const {
    AttentionRows rest = *this;
    rest.heads = count;
    rest.q += int64_t{first} * key_dim;
    rest.out += int64_t{first} * value_dim;
    if (sinks != nullptr) rest.sinks += first;
    return rest;
  }
};

struct AttentionCall : AttentionRows {
  const KvPool* cache = nullptr;
  PageTable table;
};

// A launch of attend_decode has at most this many rows; larger batches take several launches.
inline constexpr int64_t kDecodeRows = 256;

// Holds the device memory in which attend_decode combines the parts of a row. Only one launch at a
// time may use it.
class AttentionScratch {
 public:
  AttentionScratch() = default;
  AttentionScratch(int64_t max_m, int heads, int kv_heads, int head_dim);
  static uint64_t bytes(int64_t max_m, int heads, int kv_heads, int head_dim);

  float* partials() const { return partials_.as<float>(); }
  int32_t* arrived() const { return arrived_.as<int32_t>(); }
  uint64_t bytes() const { return partials_.bytes() + arrived_.bytes(); }

 private:
  Buffer partials_, arrived_;
};

// Returns the context length that a launch for `longest` positions covers: the next power of two,
// at least 256. Launches with equal m and reach have the same shape.
int64_t attention_reach(int64_t longest);

// Computes attention in decode: every row is a token of its own sequence (or an independent row of
// any). `longest` must be at least every position + 1; larger values give equal results and, within
// a reach, equal speed. A row's result depends on m and the reach only through the order of float
// additions.
void attend_decode(const AttentionCall& call, int64_t longest, const AttentionScratch& scratch,
                   Stream stream);

// Computes attention to a pool of latents, for up to kDecodeRows rows whatever their sequences are.
// A head of a query has value_dim numbers for the latent and then head_dim for the shared key; its
// result has value_dim numbers.
void attend_latents(const AttentionCall& call, int64_t longest, const AttentionScratch& scratch,
                    Stream stream);

// Computes attention in prefill: the rows are consecutive positions of one sequence, which is read
// from row 0. Keys and values of all rows must be in the cache. A key that is NaN affects the rows
// that see its position; values are always finite (rope_and_store).
void attend_prefill(const AttentionCall& call, Stream stream);

}  // namespace walsh::cuda
