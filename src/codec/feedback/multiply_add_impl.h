// Writes multiply_add once over vectors of columns; see multiply_add.h. `Arch` gives type Reg of
// kLanes floats, load, store, set, fma, and the size of the tile that its registers hold.
// Everything is in an unnamed namespace, so that a function compiled for one instruction set is
// never merged with its namesake compiled for another.
#pragma once

#include <cmath>
#include <cstring>

#include "codec/feedback/multiply_add.h"

namespace {

using walsh::detail::LeftFactor;

// This many rows of b are copied to contiguous memory at a time, because long rows of equal
// alignment would map to the same few cache sets.
constexpr int64_t kSlab = 128;

// Multiplies by packed b[k][kVectors * kLanes].
template <class Arch, int kRows, int kVectors>
void tile(LeftFactor a, const float* b, float* c, int64_t ldc, int64_t k) {
  using Reg = typename Arch::Reg;
  constexpr int64_t kWidth = kVectors * Arch::kLanes;
  Reg sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = Arch::load(c + r * ldc + v * Arch::kLanes);
  }
  for (int64_t t = 0; t < k; ++t, b += kWidth) {
    Reg columns[kVectors];
    for (int v = 0; v < kVectors; ++v)
      columns[v] = Arch::load(b + v * Arch::kLanes);
    for (int r = 0; r < kRows; ++r) {
      const Reg factor = Arch::set(a.data[r * a.row + t * a.col]);
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = Arch::fma(factor, columns[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      Arch::store(c + r * ldc + v * Arch::kLanes, sums[r][v]);
  }
}

template <class Arch, int kVectors>
void strip(LeftFactor a, const float* b, int64_t ldb, float* c, int64_t ldc, int64_t m, int64_t k) {
  constexpr int64_t kWidth = kVectors * Arch::kLanes;
  alignas(64) float packed[kSlab * kWidth];
  for (int64_t t = 0; t < k; ++t)
    std::memcpy(packed + t * kWidth, b + t * ldb, kWidth * sizeof(float));
  int64_t i = 0;
  for (; i + Arch::kTileRows <= m; i += Arch::kTileRows) {
    tile<Arch, Arch::kTileRows, kVectors>({a.data + i * a.row, a.row, a.col}, packed, c + i * ldc,
                                          ldc, k);
  }
  for (; i < m; ++i)
    tile<Arch, 1, kVectors>({a.data + i * a.row, a.row, a.col}, packed, c + i * ldc, ldc, k);
}

template <class Arch>
void multiply_add(LeftFactor a, const float* b, int64_t ldb, float* c, int64_t ldc, int64_t m,
                  int64_t n, int64_t k) {
  constexpr int64_t kWide = Arch::kTileVectors * Arch::kLanes;
  for (int64_t begin = 0; begin < k; begin += kSlab) {
    const int64_t depth = k - begin < kSlab ? k - begin : kSlab;
    const LeftFactor part = {a.data + begin * a.col, a.row, a.col};
    const float* rows = b + begin * ldb;
    int64_t j = 0;
    for (; j + kWide <= n; j += kWide)
      strip<Arch, Arch::kTileVectors>(part, rows + j, ldb, c + j, ldc, m, depth);
    for (; j + Arch::kLanes <= n; j += Arch::kLanes)
      strip<Arch, 1>(part, rows + j, ldb, c + j, ldc, m, depth);
    for (; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) {
        float sum = c[i * ldc + j];
        for (int64_t t = 0; t < depth; ++t)
          sum = std::fma(part.data[i * a.row + t * a.col], rows[t * ldb + j], sum);
        c[i * ldc + j] = sum;
      }
    }
  }
}

}  // namespace
