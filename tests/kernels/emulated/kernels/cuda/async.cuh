// Launches on the host follow each other; shared memory is that of the running block, and lanes
// give each other the operands of products.
#pragma once

#include <cuda_fp16.h>

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
inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(static_cast<const std::byte*>(p) -
                               static_cast<const std::byte*>(emulated::block().shared()));
}
inline uint32_t shared_word(uint32_t address) {
  return shared_value<uint32_t>(address);
}
inline float4 shared_float4(uint32_t address) {
  return shared_value<float4>(address);
}
inline float2 halves(uint32_t word) {
  return __half22float2(std::bit_cast<__half2>(word));
}
// Copies are there at once, which waits allow.
inline void copy_async(uint32_t address, const void* global) {
  std::memcpy(static_cast<std::byte*>(emulated::block().shared()) + address, global, 16);
}
inline void copy_commit() {}
template <int Pending>
void copy_wait() {}
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
  struct Operands {
    uint32_t a[4], b[2];
  };
  static Operands all[1024];  // of the threads of a block
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  all[threadIdx.x] = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  __syncwarp();
  const Operands* warp = all + threadIdx.x / 32 * 32;
  const auto byte = [](uint32_t word, unsigned k) {
    return static_cast<int>(word >> (8 * k) & 255);
  };
  const auto number = [](int value) { return value < 128 ? value : value - 256; };
  for (unsigned i = 0; i < 4; ++i) {
    for (unsigned k = 0; k < 32; ++k) {
      const unsigned from = k % 16 / 4, half = k / 16;
      const int weight = byte(warp[4 * g + from].a[i / 2 + 2 * half], k % 4);
      const int value = byte(warp[4 * (2 * t + i % 2) + from].b[half], k % 4);
      d[i] += (as_signed ? number(weight) : weight) * number(value);
    }
  }
  __syncwarp();
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
