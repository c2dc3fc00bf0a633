// Decodes floats of 8 and 4 bits as checkpoints store them (OCP 8-bit and microscaling formats).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace walsh {

// Decodes E4M3, which has a sign, 4 bits of exponent with bias 7 and 3 of mantissa. There is no
// infinity; NaN is 0x7f and 0xff.
inline float e4m3_to_f32(uint8_t code) {
  const uint32_t exponent = (code >> 3) & 15u, mantissa = code & 7u;
  float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  if (exponent != 0) magnitude = std::bit_cast<float>(((exponent + 120) << 23) | (mantissa << 20));
  if ((code & 0x7f) == 0x7f) magnitude = std::numeric_limits<float>::quiet_NaN();
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// Decodes E8M0, which is a power of two with bias 127; NaN is 0xff.
inline float e8m0_to_f32(uint8_t code) {
  if (code == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return code == 0 ? 0x1p-127f : std::bit_cast<float>(uint32_t{code} << 23);
}

// Decodes E2M1, which has a sign, 2 bits of exponent with bias 1 and 1 of mantissa: 0, 0.5, 1, 1.5,
// 2, 3, 4, 6.
inline float e2m1_to_f32(uint8_t code) {
  const uint32_t exponent = (code >> 1) & 3u, mantissa = code & 1u;
  float magnitude = static_cast<float>(mantissa) * 0.5f;
  if (exponent != 0) magnitude = std::bit_cast<float>(((exponent + 126) << 23) | (mantissa << 22));
  return (code & 8) != 0 ? -magnitude : magnitude;
}

}  // namespace walsh
