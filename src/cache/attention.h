// Attention of queries to the stored positions of a cache (cache/side.h), in the rotated
// domain: two matrix products per block of positions, with a softmax that goes from block to block;
// and putting its result together with that over other positions.
#pragma once

#include <cstdint>

#include "cache/side.h"
#include "rotate/rotation.h"

namespace walsh {

// The stored positions of one kv head. Rotators may be null.
struct CacheHead {
  const CacheKeys* keys;
  const CacheValues* values;
  const Rotator* key_rotator;
  const Rotator* value_rotator;
  // [head_dim] or null: what was taken from every key before it was stored. It comes back as a part
  // of the logits, since other positions are not in this cache.
  const float* key_offset;
  // Block of keys and values that has positions [kCacheBlock * j, ...); null: j.
  const int32_t* blocks = nullptr;
};

// Queries as Ops::attention has them. Query i sees the stored positions [begin[i], end[i]), maybe
// none; neither decreases with i, ends are multiples of kCacheBundle.
struct CacheQueries {
  const float* q;
  int64_t ldq, m;
  int heads, head_dim;
  LogitRule logits;
  const int64_t* begin;
  const int64_t* end;
};

// What a thread needs besides.
struct CacheScratch {
  CacheRows queries, scaled;
  AlignedArray<float> weights;                  // [rows][kCacheBlock]
  AlignedArray<float> sums;                     // [rows][columns of values]
  AlignedArray<float> largest, totals, shifts;  // [rows]

  CacheScratch() = default;
  // For `rows` rows; `exact`: products in float32.
  CacheScratch(const CacheType& keys, const CacheType& values, int64_t head_dim, int64_t rows,
               bool exact);
};

// out as in Ops::attention, log_sums [m][heads]; m * heads rows as `scratch` has. A query that sees
// nothing has zeros and -infinity.
void attend_stored(const Ops& ops, const CacheHead& head, const CacheQueries& queries, float* out,
                   int64_t ldo, float* log_sums, CacheScratch& scratch);

// Results over two sets of positions, [head_dim] each, become that over both, in `a`. Returns the
// logarithm of the sum of both.
float merge_attention(float* a, float log_sum_a, const float* b, float log_sum_b, int head_dim);

}  // namespace walsh
