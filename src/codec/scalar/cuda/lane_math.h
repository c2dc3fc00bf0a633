// The GPU encoder's kernels and their emulation on the host share this arithmetic. It compiles for
// the device under nvcc and for the host otherwise, so that the order of float operations can be
// tested without a GPU.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define WALSH_LANE __device__ __forceinline__
#define WALSH_UNROLL _Pragma("unroll")
#define WALSH_NO_UNROLL _Pragma("unroll 1")
#else
#define WALSH_LANE inline
#define WALSH_UNROLL
#define WALSH_NO_UNROLL
#endif

namespace walsh::cuda::encoding {

WALSH_LANE float magnitude_of(float x) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffffu);
}

// Returns the bits of the magnitude as a float, plus one bit if x is not positive. Then key(x) > t
// >= 0 means |x| > t for positive x and |x| >= t for others, so that a tie goes to the lower level
// on either side.
WALSH_LANE float key_of(float x) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(x) & 0x7fffffffu;
  return std::bit_cast<float>(magnitude + (x > 0 ? 0u : 1u));
}

// Returns 2^e for e in [-126, 127].
WALSH_LANE float power_of_two(int e) {
  return std::bit_cast<float>(static_cast<uint32_t>(e + 127) << 23);
}

WALSH_LANE double double_power_of_two(int e) {
  return std::bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52);
}

// Returns x * 2^e, rounded once as ldexp does: by one product, in double if a float cannot hold
// 2^e.
WALSH_LANE float scaled(float x, int e) {
  if (e >= -126 && e <= 127) return x * power_of_two(e);
  return static_cast<float>(static_cast<double>(x) * double_power_of_two(e));
}

// Returns the exponent that brings a group with this largest magnitude near 1. Its power of two and
// the inverse are normal floats. A denormal magnitude is treated as smaller than all normal ones.
WALSH_LANE int group_exponent(float largest) {
  if (!(largest > 0)) return 0;
  const int e = static_cast<int>(std::bit_cast<uint32_t>(largest) >> 23) - 127;
  return e < -120 ? -120 : e > 126 ? 126 : e;
}

WALSH_LANE float clamped(float x, float low, float high) {
  return x < low ? low : high < x ? high : x;
}

}  // namespace walsh::cuda::encoding
