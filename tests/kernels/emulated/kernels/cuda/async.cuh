// Launches on the host follow each other; shared memory is that of the running block, and lanes
// give each other the operands of products.
#pragma once

#include "kernels/emulated/device.h"

namespace walsh::cuda {

inline void allow_next_kernel() {}
inline void wait_previous_kernel() {}

template <typename T>
T shared_value(uint32_t address) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(emulated::block().shared()) + address,
              sizeof value);
  return value;
}
inline uint4 shared_words(uint32_t address) {
  return shared_value<uint4>(address);
}
inline float2 shared_float2(uint32_t address) {
  return shared_value<float2>(address);
}

// d += a b, a 16 rows x 32, b 32 x 8: lane 4 g + t gives four columns of rows g and g + 8 twice and
// of b's column g, and gets columns 2 t and 2 t + 1.
inline void add_bytes(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                      bool as_signed) {
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  const auto byte = [](uint64_t word, int i) { return static_cast<int>(word >> (8 * i) & 255); };
  const auto number = [](int value) { return value < 128 ? value : value - 256; };
  for (int from = 0; from < 4; ++from) {
    uint64_t row[2], column[2];
    for (int h = 0; h < 2; ++h) {
      row[h] = emulated::block().from_lane(uint64_t{a[2 + h]} << 32 | a[h],
                                           [&](int) { return 4 * g + from; });
      column[h] = emulated::block().from_lane(uint64_t{b1} << 32 | b0,
                                              [&](int) { return 4 * (2 * t + h) + from; });
    }
    for (int i = 0; i < 4; ++i) {
      for (int k = 0; k < 8; ++k) {
        const int weight = byte(row[i / 2], k);
        d[i] += (as_signed ? number(weight) : weight) * number(byte(column[i % 2], k));
      }
    }
  }
}
inline void mma_int8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                     const int (&c)[4]) {
  int sum[4] = {c[0], c[1], c[2], c[3]};
  add_bytes(sum, a, b0, b1, true);
  for (int i = 0; i < 4; ++i)
    d[i] = sum[i];
}
inline void mma_bytes(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  add_bytes(d, a, b0, b1, false);
}

}  // namespace walsh::cuda
