// Attends to stored positions of a cache (cache/side.h) in the rotated domain, with two matrix
// products per block of positions and an online softmax, and merges the result with attention over
// other positions.
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
  // Positions [kCacheBlock * j, ...) are in block blocks[j] of keys and values; null: in block j.
  const int32_t* blocks = nullptr;
};

// Queries are as in Ops::attention. Query i sees the stored positions [begin[i], end[i]), possibly
// none; neither bound decreases with i, and ends are multiples of kCacheBundle.
struct CacheQueries {
  const float* q;
  int64_t ldq, m;
  int heads, head_dim;
  AttentionOptions options;  // bounds of what is seen stand below
  const int64_t* begin;
  const int64_t* end;
};

// Each thread needs its own scratch memory.
struct CacheScratch {
  CacheRows queries, scaled;
  AlignedArray<float> weights;                  // [rows][kCacheBlock]
  AlignedArray<float> sums;                     // [rows][columns of values]
  AlignedArray<float> largest, totals, shifts;  // [rows]

  CacheScratch() = default;
  // Has room for `rows` rows. With `exact`, products are computed in float32.
  CacheScratch(const CacheType& keys, const CacheType& values, int64_t head_dim, int64_t rows,
               bool exact);
};

// Writes out as Ops::attention does, and log_sums [m][heads]. `scratch` must have m * heads rows. A
// query that sees nothing gets zeros and -infinity.
void attend_stored(const Ops& ops, const CacheHead& head, const CacheQueries& queries, float* out,
                   int64_t ldo, float* log_sums, CacheScratch& scratch);

// Merges results over two sets of positions, [head_dim] each, in `a`. Returns the logarithm of the
// combined sum.
float merge_attention(float* a, float log_sum_a, const float* b, float log_sum_b, int head_dim);

}  // namespace walsh
