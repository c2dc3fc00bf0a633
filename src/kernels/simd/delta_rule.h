// Computes the gated delta rule in chunks. Matrix products within a chunk replace one update of the
// state per row ("Parallelizing Linear Transformers with the Delta Rule", Yang et al. 2024), and
// the triangular system is solved row by row. Every sum has a fixed order, whatever the number of
// rows is.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ops.h"
#include "kernels/simd/exponential.h"
#include "kernels/simd/product_tile.h"

namespace walsh::simd {

// Computes out[i * width] = a_i b for the keys and then the queries of m rows; b is [inner][width].
// The products of keys are left out if the shape is additive.
template <typename V>
void delta_products(const DeltaShape& shape, const DeltaRows& rows, int64_t m, const float* b,
                    int64_t width, float* out) {
  const int64_t inner = shape.key_dim;
  const float* a[V::kTileRows];
  for (int64_t first = shape.additive ? m : 0; first < 2 * m; first += V::kTileRows) {
    const auto count = static_cast<int>(std::min<int64_t>(V::kTileRows, 2 * m - first));
    for (int r = 0; r < count; ++r) {
      const int64_t row = first + r;
      a[r] = row < m ? rows.k + row * rows.ld : rows.q + (row - m) * rows.ld;
    }
    product<V>(count, a, FloatRows<V>{b}, width, 0, inner, out + first * width, width, width,
               false);
  }
}

// Computes out[j] = e^(sum - sums[j]) * factor * dots[j] for a whole chunk. Null dots count as 1.
// Entries of rows that have not come yet are undefined.
template <typename V>
void delta_weights(float sum, const float* sums, float factor, const float* dots, float* out) {
  for (int64_t j = 0; j < kDeltaChunk; j += V::kWidth) {
    auto weight = exponential<V>(V::sub(V::set(sum), V::load(sums + j)));
    weight = V::mul(weight, V::set(factor));
    if (dots != nullptr) weight = V::mul(weight, V::load(dots + j));
    V::store(out + j, weight);
  }
}

// Computes S <- e^G S + K^T (weights * U).
template <typename V>
void delta_advance(const DeltaShape& shape, const float* keys, const float* updates,
                   const float* sums, float* state, float* weights, float* weighted) {
  const float sum = sums[kDeltaChunk - 1];
  delta_weights<V>(sum, sums, 1, nullptr, weights);
  for (int64_t d = 0; d < shape.key_dim; ++d)
    for (int64_t j = 0; j < kDeltaChunk; j += V::kWidth)
      V::store(weighted + d * kDeltaChunk + j,
               V::mul(V::load(keys + d * kDeltaChunk + j), V::load(weights + j)));
  const auto decay = exponential<V>(V::set(sum));
  for (int64_t i = 0; i < shape.key_dim * shape.value_dim; i += V::kWidth)
    V::store(state + i, V::mul(V::load(state + i), decay));
  const float* a[V::kTileRows];
  for (int64_t first = 0; first < shape.key_dim; first += V::kTileRows) {
    const auto count = static_cast<int>(std::min<int64_t>(V::kTileRows, shape.key_dim - first));
    for (int r = 0; r < count; ++r)
      a[r] = weighted + (first + r) * kDeltaChunk;
    product<V>(count, a, FloatRows<V>{updates}, shape.value_dim, 0, kDeltaChunk,
               state + first * shape.value_dim, shape.value_dim, shape.value_dim, true);
  }
}

// Computes the rows of one value head. `read` has the products of keys and queries with the state,
// and `dots` those with the chunk's keys.
template <typename V>
void delta_rows(const DeltaShape& shape, int64_t value, const DeltaState& state,
                const DeltaRows& rows, int64_t used, int64_t m, const float* read,
                const float* dots, float* weights) {
  const int64_t width = shape.value_dim;
  float* sums = state.sums + value * kDeltaChunk;
  float* updates = state.updates + value * kDeltaChunk * width;
  const float* coefficients[1] = {weights};
  for (int64_t i = 0; i < m; ++i) {
    const int64_t t = used + i;
    const float before = t == 0 ? 0 : sums[t - 1];
    const float sum = sums[t] = before + rows.log_decay[i * rows.ld_decay + value];
    const auto decay = exponential<V>(V::set(sum));
    const auto strength = V::set(rows.strength[i * rows.ld_strength + value]);
    const float* v = rows.v + i * rows.ld + value * width;
    float* update = updates + t * width;
    if (!shape.additive) {
      for (int64_t c = 0; c < width; c += V::kWidth) {
        const auto seen = V::mul(decay, V::load(read + i * width + c));
        V::store(update + c, V::sub(V::load(v + c), seen));
      }
      delta_weights<V>(sum, sums, -1, dots + i * kDeltaChunk, weights);
      product<V>(1, coefficients, FloatRows<V>{updates}, width, 0, t, update, width, width, true);
    }
    const float* unscaled = shape.additive ? v : update;
    for (int64_t c = 0; c < width; c += V::kWidth)
      V::store(update + c, V::mul(V::load(unscaled + c), strength));
    if (i < rows.first) continue;
    float* out = rows.out + (i - rows.first) * rows.ld_out + value * width;
    const auto skip = V::set(rows.skip != nullptr ? rows.skip[value] : 0);
    for (int64_t c = 0; c < width; c += V::kWidth) {
      const auto read_before = V::mul(decay, V::load(read + (m + i) * width + c));
      V::store(out + c, V::fma(skip, V::load(v + c), read_before));
    }
    delta_weights<V>(sum, sums, 1, dots + (m + i) * kDeltaChunk, weights);
    product<V>(1, coefficients, FloatRows<V>{updates}, width, 0, t + 1, out, width, width, true);
  }
}

template <typename V>
void delta_rule(const DeltaShape& shape, const DeltaState& state, const DeltaRows& rows,
                int64_t used, int64_t m, float* scratch) {
  static_assert(kDeltaChunk % V::kWidth == 0);
  float* read = scratch;
  float* dots = read + 2 * kDeltaChunk * shape.value_dim;
  float* weights = dots + 2 * kDeltaChunk * kDeltaChunk;
  float* weighted = weights + kDeltaChunk;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t d = 0; d < shape.key_dim; ++d)
      state.keys[d * kDeltaChunk + used + i] = rows.k[i * rows.ld + d];
  delta_products<V>(shape, rows, m, state.keys, kDeltaChunk, dots);
  for (int64_t value = 0; value < shape.values; ++value) {
    float* own = state.states + value * shape.key_dim * shape.value_dim;
    delta_products<V>(shape, rows, m, own, shape.value_dim, read);
    delta_rows<V>(shape, value, state, rows, used, m, read, dots, weights);
    if (used + m < kDeltaChunk) continue;
    delta_advance<V>(shape, state.keys, state.updates + value * kDeltaChunk * shape.value_dim,
                     state.sums + value * kDeltaChunk, own, weights, weighted);
  }
}

}  // namespace walsh::simd
