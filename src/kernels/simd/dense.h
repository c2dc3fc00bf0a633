// Multiplies with plain weights over any vector type.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace walsh::simd {

template <typename V, DType kType>
auto load_weights(const std::byte* p) {
  if constexpr (kType == DType::f16) return V::load_f16(p);
  if constexpr (kType == DType::bf16) return V::load_bf16(p);
  if constexpr (kType == DType::f32) return V::load(reinterpret_cast<const float*>(p));
}
template <typename V, DType kType>
auto load_weights(const std::byte* p, int64_t n) {
  if constexpr (kType == DType::f16) return V::load_f16(p, n);
  if constexpr (kType == DType::bf16) return V::load_bf16(p, n);
  if constexpr (kType == DType::f32) return V::load(reinterpret_cast<const float*>(p), n);
}

// Computes y[t * ldy + r] = sum_c w[r][c] x[t][c]. Lanes run over columns, with one accumulator per
// element whatever the shape of the tile is, so a token's result does not depend on the batch.
template <typename V, DType kType, int kRows, int kTokens>
void dense_tile(const std::byte* w, int64_t cols, const float* x, int64_t ldx, float* y,
                int64_t ldy) {
  static_assert(kRows <= 4);
  constexpr int64_t kSize = dtype_size(kType);
  typename V::Reg acc[kTokens][kRows];
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < kRows; ++r)
      acc[t][r] = V::zero();
  }
  const auto step = [&](const typename V::Reg(&weights)[kRows], const auto& load_x) {
    for (int t = 0; t < kTokens; ++t) {
      const auto v = load_x(t);
      for (int r = 0; r < kRows; ++r)
        acc[t][r] = V::fma(weights[r], v, acc[t][r]);
    }
  };
  typename V::Reg weights[kRows];
  int64_t c = 0;
  for (; c + V::kWidth <= cols; c += V::kWidth) {
    for (int r = 0; r < kRows; ++r) {
      weights[r] = load_weights<V, kType>(w + (r * cols + c) * kSize);
    }
    step(weights, [&](int t) { return V::load(x + t * ldx + c); });
  }
  if (const int64_t n = cols - c; n > 0) {
    for (int r = 0; r < kRows; ++r) {
      weights[r] = load_weights<V, kType>(w + (r * cols + c) * kSize, n);
    }
    step(weights, [&](int t) { return V::load(x + t * ldx + c, n); });
  }
  constexpr int kLast = kRows - 1;
  for (int t = 0; t < kTokens; ++t) {
    alignas(16) float sums[4];
    _mm_store_ps(sums, V::sums(acc[t][0], acc[t][std::min(1, kLast)], acc[t][std::min(2, kLast)],
                               acc[t][kLast]));
    for (int r = 0; r < kRows; ++r)
      y[t * ldy + r] = sums[r];
  }
}

// Calls dense_tile for 1..V::kDenseTokens tokens.
template <typename V, DType kType, int kRows, int kTokens = V::kDenseTokens>
void dense_tokens(int64_t tokens, const std::byte* w, int64_t cols, const float* x, int64_t ldx,
                  float* y, int64_t ldy) {
  if constexpr (kTokens > 1) {
    if (tokens < kTokens) {
      return dense_tokens<V, kType, kRows, kTokens - 1>(tokens, w, cols, x, ldx, y, ldy);
    }
  }
  dense_tile<V, kType, kRows, kTokens>(w, cols, x, ldx, y, ldy);
}

// Takes rows in blocks that stay in the second-level cache for all tokens.
template <typename V, DType kType>
void dense_rows(const std::byte* w, int64_t cols, const float* x, int64_t ldx, int64_t m, float* y,
                int64_t ldy, int64_t row_begin, int64_t row_end) {
  constexpr int64_t kBlockBytes = 512 * 1024, kRows = V::kDenseRows;
  const int64_t row_bytes = cols * dtype_size(kType);
  const int64_t block = std::max<int64_t>(1, kBlockBytes / (kRows * row_bytes + 1)) * kRows;
  for (int64_t begin = row_begin; begin < row_end; begin += block) {
    const int64_t end = std::min(row_end, begin + block);
    for (int64_t t = 0; t < m; t += V::kDenseTokens) {
      const int64_t tokens = std::min<int64_t>(V::kDenseTokens, m - t);
      const float* xt = x + t * ldx;
      float* yt = y + t * ldy;
      int64_t r = begin;
      for (; r + kRows <= end; r += kRows) {
        dense_tokens<V, kType, V::kDenseRows>(tokens, w + r * row_bytes, cols, xt, ldx, yt + r,
                                              ldy);
      }
      for (; r < end; ++r) {
        dense_tokens<V, kType, 1>(tokens, w + r * row_bytes, cols, xt, ldx, yt + r, ldy);
      }
    }
  }
}

template <typename V>
void matmul_dense(DType type, const void* w, int64_t cols, const float* x, int64_t ldx, int64_t m,
                  float* y, int64_t ldy, int64_t row_begin, int64_t row_end) {
  const auto* bytes = static_cast<const std::byte*>(w);
  switch (type) {
    case DType::f32:
      return dense_rows<V, DType::f32>(bytes, cols, x, ldx, m, y, ldy, row_begin, row_end);
    case DType::f16:
      return dense_rows<V, DType::f16>(bytes, cols, x, ldx, m, y, ldy, row_begin, row_end);
    case DType::bf16:
      return dense_rows<V, DType::bf16>(bytes, cols, x, ldx, m, y, ldy, row_begin, row_end);
  }
}

}  // namespace walsh::simd
