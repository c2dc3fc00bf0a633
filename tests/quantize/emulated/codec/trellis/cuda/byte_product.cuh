// Emulates the tensor core product (kernels/emulated/device.h): lanes exchange their parts of both
// operands.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/emulated/device.h"

namespace walsh::cuda::encoding {

inline void multiply_bytes(int32_t (&d)[4], const uint32_t (&a)[2], uint32_t b,
                           const int32_t (&c)[4]) {
  static uint32_t lines[32][32][2], columns[32][32];  // of each warp
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  std::copy_n(a, 2, lines[warp][lane]);
  columns[warp][lane] = b;
  __syncwarp();
  for (unsigned i = 0; i < 4; ++i) {
    int32_t sum = c[i];
    for (unsigned part = 0; part < 4; ++part) {
      const uint32_t bytes = lines[warp][lane / 4 * 4 + part][i / 2];
      const uint32_t factors = columns[warp][(lane % 4 * 2 + i % 2) * 4 + part];
      for (unsigned shift = 0; shift < 32; shift += 8) {
        sum += static_cast<int32_t>(bytes >> shift & 0xff) *
               static_cast<int8_t>(factors >> shift & 0xff);
      }
    }
    d[i] = sum;
  }
  __syncwarp();
}

inline int32_t least_of(int32_t a, int32_t b, int32_t c) {
  return std::min({a, b, c});
}

}  // namespace walsh::cuda::encoding
