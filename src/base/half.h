// Converts between float32 and the 16-bit float formats, with IEEE round-to-nearest-even.
#pragma once

#include <bit>
#include <cstdint>

namespace walsh {

inline constexpr uint16_t kHalfNan = 0x7e00;  // It is a quiet NaN in fp16.
inline constexpr float kLargestHalf = 65504.0f;

inline float bf16_to_f32(uint16_t h) {
  return std::bit_cast<float>(uint32_t{h} << 16);
}

// Converts with NaN staying NaN (quiet). Overflow goes to infinity, as IEEE asks.
inline uint16_t f32_to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16;
  const uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude << 13));
  if (magnitude < 0x0400u) {  // Zero or subnormal: the integer times 2^-24 is exact.
    const float v = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(v) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}

inline uint16_t f32_to_f16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // This is a NaN.
  if (a >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // This rounds to infinity.
  if (a < 0x38800000u) {  // Subnormal half: adding 0.5 leaves the rounded integer in the low bits.
    const float v = std::bit_cast<float>(a) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(v) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
}

// Replaces infinity by the largest finite fp16 number of the same sign.
inline uint16_t without_infinity(uint16_t h) {
  return static_cast<uint16_t>((h & 0x7fffu) == 0x7c00u ? h - 1 : h);
}

}  // namespace walsh
