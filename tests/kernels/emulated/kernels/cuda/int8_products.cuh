// Emulates products of warp groups (emulated/device.h) with an operand in shared memory whose rows
// are 128 bytes in the 128-byte swizzle.
#pragma once

#include <cstring>

#include "kernels/emulated/cluster.h"
#include "kernels/emulated/device.h"

namespace walsh::cuda::detail {

template <bool Add, int Blocks>
void multiply_int8(int (&d)[Blocks][4], const uint32_t (&a)[4], uint64_t b) {
  struct Lane {
    uint32_t a[4];
  };
  Lane all[32];
  emulated::block().from_all(Lane{{a[0], a[1], a[2], a[3]}}, all);
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const auto base = static_cast<uint32_t>(b) * 16;
  for (int n = 0; n < Blocks; ++n) {
    for (unsigned e = 0; e < 4; ++e) {
      if (!Add) d[n][e] = 0;
      const unsigned vector = 8 * static_cast<unsigned>(n) + 2 * t + e % 2;
      for (unsigned k = 0; k < 32; ++k) {
        const uint32_t left = all[4 * g + k % 16 / 4].a[2 * (k / 16) + e / 2];
        uint32_t address = base + vector * 128 + k / 16 * 16;
        address ^= address / 128 % 8 * 16;
        int8_t right[16];
        std::memcpy(right, emulated::Window::own().at(address), sizeof right);
        d[n][e] += static_cast<int8_t>(left >> (8 * (k % 4))) * right[k % 16];
      }
    }
  }
}

}  // namespace walsh::cuda::detail
