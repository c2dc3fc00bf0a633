// Computes attention over blocks of positions with a running maximum ("online softmax": Milakov and
// Gimelshein 2018; blocked as in FlashAttention, Dao et al. 2022). A row is one query of one head.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/ops.h"
#include "kernels/simd/exponential.h"
#include "kernels/simd/product_tile.h"

namespace walsh::simd {

// Says how attention is divided into blocks, and lays out its scratch memory.
struct AttentionBlocks {
  // A block has this many positions. Blocks start at multiples of this, whatever the queries are,
  // so the result of a query does not depend on the batch.
  static constexpr int64_t kKeys = 64;
  // This many rows (one query of one head each) share a converted block of keys and values.
  static constexpr int64_t kRows = 144;

  // Returns the row length of values and outputs, which is whole vectors on every instruction set.
  static constexpr int64_t padded(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

  // Returns how many floats the scratch has: keys [head_dim][kKeys], values [kKeys][padded], logits
  // [kRows][kKeys], output [kRows][padded], largest logit and sum of weights [kRows].
  static constexpr int64_t floats(int64_t head_dim) {
    return head_dim * kKeys + kKeys * padded(head_dim) + kRows * kKeys + kRows * padded(head_dim) +
           2 * kRows;
  }
};

// Holds the arguments and the parts of the scratch memory. It is a template, so that each
// instruction set has its own functions.
template <typename V>
struct BlockedAttention : GroupAttention {
  float* block_keys;    // Its shape is [head_dim][kKeys].
  float* block_values;  // Its shape is [kKeys][padded].
  // It has the shape [kRows][kKeys] and first holds logits, then e^(logit - largest).
  float* weights;
  float* sums;     // Its shape is [kRows][padded]; it has the values weighted so far.
  float* largest;  // Its shape is [kRows].
  float* totals;   // Its shape is [kRows]; it has the sum of weights so far.

  explicit BlockedAttention(const GroupAttention& call) : GroupAttention(call) {
    constexpr int64_t kKeys = AttentionBlocks::kKeys, kRows = AttentionBlocks::kRows;
    block_keys = scratch;
    block_values = block_keys + kv.head_dim * kKeys;
    weights = block_values + kKeys * padded();
    sums = weights + kRows * kKeys;
    largest = sums + kRows * padded();
    totals = largest + kRows;
  }
  int64_t padded() const { return AttentionBlocks::padded(kv.value_width()); }
  const float* query_of(int64_t row) const { return query(row / heads, row % heads); }
  // These return the positions that a row sees.
  int64_t end_of(int64_t row) const { return end(row / heads); }
  int64_t first_of(int64_t row) const { return first(row / heads); }
};

// Computes out[d * kKeys + i] = keys[i * head_dim + d], for a whole tile of vectors, or for the
// first `count` keys and `width` dimensions with zeros for the other keys. It prefetches the next
// block, whose rows are too short for the hardware to predict.
template <typename V>
void transpose_tile(const uint16_t* keys, int64_t head_dim, float* out) {
  typename V::Reg tile[V::kWidth];
  for (int i = 0; i < V::kWidth; ++i) {
    V::prefetch(keys + (i + AttentionBlocks::kKeys) * head_dim);
    tile[i] = V::load_f16(keys + i * head_dim);
  }
  V::transpose(tile);
  for (int i = 0; i < V::kWidth; ++i)
    V::store(out + i * AttentionBlocks::kKeys, tile[i]);
}
template <typename V>
void transpose_edge(const uint16_t* keys, int64_t head_dim, int64_t count, int64_t width,
                    float* out) {
  typename V::Reg tile[V::kWidth];
  for (int i = 0; i < V::kWidth; ++i) {
    tile[i] = i < count ? V::load_f16(keys + i * head_dim, width) : V::zero();
  }
  V::transpose(tile);
  for (int i = 0; i < width; ++i)
    V::store(out + i * AttentionBlocks::kKeys, tile[i]);
}

// Computes out[d * kKeys + j] = keys[j * head_dim + d], and zero for j beyond count.
template <typename V>
void transpose_keys(const uint16_t* keys, int64_t count, int64_t head_dim, float* out) {
  for (int64_t j = 0; j < AttentionBlocks::kKeys; j += V::kWidth) {
    for (int64_t d = 0; d < head_dim; d += V::kWidth) {
      const uint16_t* from = keys + j * head_dim + d;
      float* to = out + d * AttentionBlocks::kKeys + j;
      if (j + V::kWidth <= count && d + V::kWidth <= head_dim) {
        transpose_tile<V>(from, head_dim, to);
      } else {
        transpose_edge<V>(from, head_dim, count - j, std::min<int64_t>(V::kWidth, head_dim - d),
                          to);
      }
    }
  }
}

// Computes out[j * padded + d] = values[j * head_dim + d], and zero from `width` to the padded
// length.
template <typename V>
void convert_values(const uint16_t* values, int64_t count, int64_t head_dim, int64_t width,
                    float* out) {
  const int64_t padded = AttentionBlocks::padded(width);
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t d = 0; d < padded; d += V::kWidth) {
      const int64_t n = std::clamp<int64_t>(width - d, 0, V::kWidth);
      const uint16_t* p = values + j * head_dim + d;
      V::store(out + j * padded + d, n == V::kWidth ? V::load_f16(p) : V::load_f16(p, n));
    }
  }
}

// Implements Ops::weigh, with or without a cap.
template <typename V, bool kCapped>
float weigh_by(float* row, int64_t n, int64_t begin, int64_t end, const AttentionOptions& options,
               float shift, float* largest, float* total) {
  const auto hidden = V::set(-std::numeric_limits<float>::infinity());
  auto top = hidden;
  for (int64_t j = 0; j < n; j += V::kWidth) {
    auto logit = V::fma(V::load(row + j), V::set(options.scale), V::set(shift));
    if constexpr (kCapped) {
      logit = V::mul(V::set(options.logit_cap),
                     tangent<V>(V::mul(logit, V::set(1 / options.logit_cap))));
    }
    if (j < begin || j + V::kWidth > end) {
      logit = V::keep(logit, std::clamp<int64_t>(begin - j, 0, V::kWidth),
                      std::clamp<int64_t>(end - j, 0, V::kWidth), hidden);
    }
    V::store(row + j, logit);
    top = V::max(top, logit);
  }
  const float before = *largest;
  const float now = std::max(before, V::largest(top));
  float shrink = 1;
  if (now > before) {
    shrink = V::first(exponential<V>(V::set(before - now)));
    *total *= shrink;
    *largest = now;
  }
  auto added = V::zero();
  for (int64_t j = 0; j < n; j += V::kWidth) {
    const auto weight = exponential<V>(V::sub(V::load(row + j), V::set(now)));
    V::store(row + j, weight);
    added = V::add(added, weight);
  }
  *total += V::sum(added);
  return shrink;
}

template <typename V>
float weigh(float* row, int64_t n, int64_t begin, int64_t end, const AttentionOptions& options,
            float shift, float* largest, float* total) {
  return options.logit_cap != 0
             ? weigh_by<V, true>(row, n, begin, end, options, shift, largest, total)
             : weigh_by<V, false>(row, n, begin, end, options, shift, largest, total);
}

// Implements Ops::scale_weights.
template <typename V>
void scale_weights(const float* weights, const uint16_t* scales, int64_t n, float* out) {
  const auto least = V::set(std::numeric_limits<float>::denorm_min());
  for (int64_t i = 0; i < n; i += V::kWidth) {
    const auto weight = V::load(weights + i);
    V::store(out + i, V::zero_below(weight, least, V::mul(weight, V::load_f16(scales + i))));
  }
}

// Weighs one row of one block: logits become weights, and earlier sums are rescaled if the largest
// logit has grown.
template <typename V>
void weigh_row(float* row, int64_t begin, int64_t end, const AttentionOptions& options,
               float* largest, float* total, float* sums, int64_t padded) {
  const float shrink =
      weigh<V>(row, AttentionBlocks::kKeys, begin, end, options, 0, largest, total);
  if (shrink == 1) return;
  for (int64_t d = 0; d < padded; d += V::kWidth)
    V::store(sums + d, V::mul(V::load(sums + d), V::set(shrink)));
}

// Processes rows [row, row + rows) against the converted block at position `block`. `slot` is the
// place of the first row in the scratch memory.
template <typename V, typename B>
void attend_tile(const BlockedAttention<V>& call, int64_t row, int rows, int64_t slot,
                 int64_t block, B values, int64_t ldv) {
  constexpr int64_t kKeys = AttentionBlocks::kKeys;
  const int64_t padded = call.padded();
  const int64_t begin = std::max<int64_t>(0, call.first_of(row) - block);
  const int64_t end = std::min(kKeys, call.end_of(row + rows - 1) - block);
  if (begin >= end) return;
  float* weights = call.weights + slot * kKeys;
  float* sums = call.sums + slot * padded;
  const float* factors[V::kTileRows] = {};
  for (int r = 0; r < rows; ++r)
    factors[r] = call.query_of(row + r);
  product<V>(rows, factors, FloatRows<V>{call.block_keys}, kKeys, 0, call.kv.head_dim, weights,
             kKeys, kKeys, false);
  int64_t from[V::kTileRows], to[V::kTileRows];
  for (int r = 0; r < rows; ++r) {
    float* logits = weights + r * kKeys;
    factors[r] = logits;
    from[r] = std::max<int64_t>(0, call.first_of(row + r) - block);
    to[r] = std::min(kKeys, call.end_of(row + r) - block);
    // A row that sees nothing of this block may have no largest logit yet, so it is skipped.
    if (from[r] >= to[r]) continue;
    weigh_row<V>(logits, from[r], to[r], call.options, call.largest + slot + r,
                 call.totals + slot + r, sums + r * padded, padded);
  }
  // Each position is added only for the rows that see it, because a weight of zero would not remove
  // a value that is not finite. Both ends grow from row to row.
  for (int64_t k = begin; k < end;) {
    int64_t next = end;
    int seen = 0, last = 0;
    for (; seen < rows && to[seen] <= k; ++seen) {
    }
    for (last = seen; last < rows && from[last] <= k; ++last)
      next = std::min(next, to[last]);
    if (last < rows) next = std::min(next, std::max(k + 1, from[last]));
    if (seen < last) {
      product<V>(last - seen, factors + seen, values, ldv, k, next, sums + seen * padded, padded,
                 padded, true);
    }
    k = next;
  }
}

// Processes rows [row, row + rows), at most kRows, against everything that they see.
template <typename V>
void attend_rows(const BlockedAttention<V>& call, int64_t row, int64_t rows) {
  constexpr int64_t kKeys = AttentionBlocks::kKeys;
  const int64_t padded = call.padded(), head_dim = call.kv.head_dim;
  const int64_t end = call.end_of(row + rows - 1);
  std::fill(call.sums, call.sums + rows * padded, 0.0f);
  std::fill(call.totals, call.totals + rows, 0.0f);
  std::fill(call.largest, call.largest + rows, -std::numeric_limits<float>::infinity());
  // A single tile reads each value once, so converting them beforehand would not pay.
  const int64_t width = call.kv.value_width();
  const bool direct = rows <= V::kTileRows && width == padded;
  for (int64_t block = call.first_of(row) / kKeys * kKeys; block < end; block += kKeys) {
    const int64_t count = std::min(kKeys, end - block);
    const int64_t at = call.kv.offset(call.kv_head, block);
    const uint16_t* values = call.kv.values + at;
    transpose_keys<V>(call.kv.keys + at, count, head_dim, call.block_keys);
    if (direct) {
      attend_tile<V>(call, row, static_cast<int>(rows), 0, block,
                     HalfRows<V>{values, kKeys * head_dim}, head_dim);
      continue;
    }
    convert_values<V>(values, count, head_dim, width, call.block_values);
    for (int64_t r = 0; r < rows; r += V::kTileRows) {
      const int n = static_cast<int>(std::min<int64_t>(V::kTileRows, rows - r));
      attend_tile<V>(call, row + r, n, r, block, FloatRows<V>{call.block_values}, padded);
    }
  }
}

// Implements Ops::attention.
template <typename V>
void attention(const GroupAttention& group) {
  const BlockedAttention<V> call(group);
  const int64_t all = call.m * call.heads, padded = call.padded(), width = call.kv.value_width();
  for (int64_t row = 0; row < all; row += AttentionBlocks::kRows) {
    const int64_t rows = std::min(AttentionBlocks::kRows, all - row);
    attend_rows<V>(call, row, rows);
    for (int64_t r = 0; r < rows; ++r) {
      float* target = call.result((row + r) / call.heads, (row + r) % call.heads);
      const float* sums = call.sums + r * padded;
      const auto total = V::set(call.totals[r]);
      if (call.log_sums != nullptr)
        call.log_sums[row + r] = call.largest[r] + std::log(call.totals[r]);
      for (int64_t d = 0; d < width; d += V::kWidth) {
        const int64_t n = std::min<int64_t>(V::kWidth, width - d);
        V::store(target + d, V::div(V::load(sums + d), total), n);
      }
    }
  }
}

}  // namespace walsh::simd
