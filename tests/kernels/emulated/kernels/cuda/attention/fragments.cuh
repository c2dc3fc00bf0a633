// Emulates fragments of halves on the host (emulated/device.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "base/half.h"
#include "kernels/cuda/async.cuh"
#include "kernels/emulated/device.h"

#define WALSH_SHARED_TILES(name) \
  auto* name = static_cast<unsigned char*>(emulated::block().shared())

namespace walsh::cuda {

inline void copy_async_or_zero(uint32_t shared, const void* global, bool copy) {
  static constexpr uint4 kZeros{};
  copy_async(shared, copy ? global : &kZeros);
}

// Returns element 0 or 1 of a word.
inline uint32_t half_of(uint32_t word, unsigned i) {
  return word >> (16 * i) & 0xffff;
}

// The rows of matrix j are where lanes 8 j and following point.
inline void load_matrices(uint32_t (&d)[4], uint32_t shared) {
  uint32_t rows[32];
  emulated::block().from_all(shared, rows);
  const unsigned lane = threadIdx.x % 32;
  for (unsigned j = 0; j < 4; ++j)
    d[j] = shared_word(rows[8 * j + lane / 4] + 4 * (lane % 4));
}

inline void load_transposed(uint32_t (&d)[4], uint32_t shared) {
  uint32_t rows[32];
  emulated::block().from_all(shared, rows);
  const unsigned lane = threadIdx.x % 32, column = lane / 4, row = 2 * (lane % 4);
  for (unsigned j = 0; j < 4; ++j) {
    const auto element = [&](unsigned r) {
      return half_of(shared_word(rows[8 * j + r] + 4 * (column / 2)), column % 2);
    };
    d[j] = element(row) | element(row + 1) << 16;
  }
}

inline uint32_t transpose8x8(uint32_t v) {
  uint32_t all[32];
  emulated::block().from_all(v, all);
  const unsigned lane = threadIdx.x % 32, column = lane / 4, row = 2 * (lane % 4);
  const auto element = [&](unsigned r) { return half_of(all[4 * r + column / 2], column % 2); };
  return element(row) | element(row + 1) << 16;
}

// Lane 4 g + t has rows g and g + 8 and columns 2 t.., 8 + 2 t.. of a, these as rows and column g
// of b, and columns 2 t and 2 t + 1 of the result. Sums are truncated, as tensor cores may do.
inline void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Lane {
    uint32_t a[4], b[2];
  };
  Lane all[32];
  emulated::block().from_all(Lane{{a[0], a[1], a[2], a[3]}, {b0, b1}}, all);
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const auto number = [](uint32_t word, unsigned i) {
    return double{f16_to_f32(static_cast<uint16_t>(half_of(word, i)))};
  };
  for (unsigned i = 0; i < 4; ++i) {
    double sum = double{c[i]};
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned of = k % 8 / 2;
      sum += number(all[4 * g + of].a[i / 2 + 2 * (k / 8)], k % 2) *
             number(all[4 * (2 * t + i % 2) + of].b[k / 8], k % 2);
    }
    const auto near = static_cast<float>(sum);
    c[i] = std::fabs(double{near}) > std::fabs(sum) ? std::nextafter(near, 0.0f) : near;
  }
}

inline float power_of_two(float x) {
  return std::exp2(x);
}
inline float quick_reciprocal(float x) {
  return 1 / x;
}

}  // namespace walsh::cuda
