// Attends to the stored positions of a cache (cache/side.h) in the rotated domain. Each block of
// positions takes two matrix products and a step of an online softmax. merge_attention merges the
// result with attention over other positions.
#pragma once

#include <cstdint>

#include "cache/side.h"
#include "rotate/rotation.h"

namespace walsh {

// Describes the stored positions of one KV head. Rotators may be null.
struct CacheHead {
  const CacheKeys* keys;
  const CacheValues* values;
  const Rotator* key_rotator;
  const Rotator* value_rotator;
  // This offset was subtracted from every key before storing: [head_dim] or null. Its product with
  // the query is added to the logits, because positions outside this cache have no offset.
  const float* key_offset;
  // Positions [kCacheBlock * j, ...) are in block blocks[j] of keys and values; if this is null, in
  // block j.
  const int32_t* blocks = nullptr;
};

// Describes queries, which are laid out as in Ops::attention. Query i sees the stored positions
// [begin[i], end[i]), possibly none. Neither bound decreases with i, and ends are multiples of
// kCacheBundle.
struct CacheQueries {
  const float* q;
  int64_t ldq, m;
  int heads, head_dim;
  AttentionOptions options;  // The bounds of what queries see stand below.
  const int64_t* begin;
  const int64_t* end;
};

// Holds scratch memory. Each thread needs its own.
struct CacheScratch {
  CacheRows queries, scaled;
  AlignedArray<float> weights;                  // Its shape is [rows][kCacheBlock].
  AlignedArray<float> sums;                     // Its shape is [rows][columns of values].
  AlignedArray<float> largest, totals, shifts;  // The shape of each is [rows].

  CacheScratch() = default;
  // Has room for `rows` rows. With `exact`, products are computed in float32.
  CacheScratch(const CacheType& keys, const CacheType& values, int64_t head_dim, int64_t rows,
               bool exact);
};

// Writes `out` as Ops::attention does, and log_sums [m][heads]. `scratch` must have m * heads rows.
// A query that sees nothing gets zeros and -infinity.
void attend_stored(const Ops& ops, const CacheHead& head, const CacheQueries& queries, float* out,
                   int64_t ldo, float* log_sums, CacheScratch& scratch);

// Merges the results over two sets of positions, [head_dim] each, and writes them to `a`. Returns
// the logarithm of the combined sum.
float merge_attention(float* a, float log_sum_a, const float* b, float log_sum_b, int head_dim);

}  // namespace walsh
