// Computes a tile of a float32 product, the inner part of attention.
#pragma once

#include <cstdint>

namespace walsh::simd {

// Loads the second factor of a product: float32, or fp16 converted on the fly.
template <typename V>
struct FloatRows {
  const float* data;
  auto load(int64_t i) const { return V::load(data + i); }
};
template <typename V>
struct HalfRows {
  const uint16_t* data;
  // It is the distance, in elements, of the memory to prefetch.
  int64_t ahead;
  auto load(int64_t i) const {
    V::prefetch(data + i + ahead);
    return V::load_f16(data + i);
  }
};

// Computes c[r * ldc + j] (+)= sum over k in [begin, end) of a[r * lda + k] * b[k * ldb + j], for j
// in kVectors whole vectors. There is one accumulator per element, and k ascends, so an element's
// value does not depend on the shape of the tile.
template <typename V, int kRows, int kVectors, typename B>
void product_tile(const float* const* a, B b, int64_t ldb, int64_t begin, int64_t end, float* c,
                  int64_t ldc, bool accumulate) {
  typename V::Reg acc[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = accumulate ? V::load(c + r * ldc + v * V::kWidth) : V::zero();
    }
  }
  for (int64_t k = begin; k < end; ++k) {
    typename V::Reg column[kVectors];
    for (int v = 0; v < kVectors; ++v)
      column[v] = b.load(k * ldb + v * V::kWidth);
    for (int r = 0; r < kRows; ++r) {
      const auto factor = V::set(a[r][k]);
      for (int v = 0; v < kVectors; ++v)
        acc[r][v] = V::fma(factor, column[v], acc[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      V::store(c + r * ldc + v * V::kWidth, acc[r][v]);
  }
}

// Calls product_tile for 1..kTileRows rows.
template <typename V, int kVectors, int kRows = V::kTileRows, typename B>
void product_rows(int rows, const float* const* a, B b, int64_t ldb, int64_t begin, int64_t end,
                  float* c, int64_t ldc, bool accumulate) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return product_rows<V, kVectors, kRows - 1>(rows, a, b, ldb, begin, end, c, ldc, accumulate);
    }
  }
  product_tile<V, kRows, kVectors>(a, b, ldb, begin, end, c, ldc, accumulate);
}

// Calls product_tile for 1..kTileRows rows and any multiple of the vector width as columns.
template <typename V, int kVectors = V::kTileVectors, typename B>
void product(int rows, const float* const* a, B b, int64_t ldb, int64_t begin, int64_t end,
             float* c, int64_t ldc, int64_t columns, bool accumulate) {
  while (columns >= kVectors * V::kWidth) {
    product_rows<V, kVectors>(rows, a, b, ldb, begin, end, c, ldc, accumulate);
    b.data += kVectors * V::kWidth;
    c += kVectors * V::kWidth;
    columns -= kVectors * V::kWidth;
  }
  if constexpr (kVectors > 1) {
    if (columns > 0) {
      product<V, kVectors - 1>(rows, a, b, ldb, begin, end, c, ldc, columns, accumulate);
    }
  }
}

}  // namespace walsh::simd
