// Decodes parts of ggml's blocks, for all files that read them.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/half.h"

namespace walsh {

// Decodes one block to all its weights.
using GgmlBlockDecoder = void(const uint8_t* block, float* out);

inline uint16_t u16_at(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}

inline uint32_t u32_at(const uint8_t* p) {
  return u16_at(p) | uint32_t{u16_at(p + 2)} << 16;
}

inline float half_at(const uint8_t* p) {
  return f16_to_f32(u16_at(p));
}

// Returns code k of an array of nibbles; the low nibble of a byte comes first.
inline int nibble_at(const uint8_t* p, int k) {
  return p[k / 2] >> (k % 2 * 4) & 15;
}

// Returns code i of 32 with five bits. Four of them are in nibbles; the fifth bits of all codes are
// in one word in front of those.
inline int ggml_five_bits(const uint8_t* high, const uint8_t* nibbles, int i) {
  const int low = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
  return low | static_cast<int>((u32_at(high) >> i) & 1) << 4;
}

// Returns value i of the two-bit codes of 256 weights: 32 bytes hold four runs of 32 values.
inline int ggml_two_bits(const uint8_t* codes, int i) {
  return codes[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}

// Returns value i of 256 nibbles: 32 bytes hold two runs of 32 values.
inline int ggml_nibble(const uint8_t* codes, int i) {
  const uint8_t byte = codes[i / 64 * 32 + i % 32];
  return i / 32 % 2 == 0 ? byte & 15 : byte >> 4;
}

// For Q3_K these return the scale of the k-th 16 weights of a block, and the level of weight i,
// from -4 to 3.
inline float ggml_q3_k_scale(const uint8_t* b, int k) {
  const uint8_t* packed = b + 96;
  const int low = k < 8 ? packed[k] & 15 : packed[k - 8] >> 4;
  const int upper = packed[8 + k % 4] >> (k / 4 * 2) & 3;
  return half_at(b + 108) * static_cast<float>((low | upper << 4) - 32);
}
inline int ggml_q3_k_level(const uint8_t* b, int i) {
  return ggml_two_bits(b + 32, i) - ((b[i % 32] >> (i / 32) & 1) != 0 ? 0 : 4);
}

// These return the code of weight i of a block of Q5_K and of Q6_K.
inline int ggml_q5_k_code(const uint8_t* b, int i) {
  return ggml_nibble(b + 48, i) | (b[16 + i % 32] >> (i / 32) & 1) << 4;
}
inline int ggml_q6_k_code(const uint8_t* b, int i) {
  const uint8_t byte = b[i / 128 * 64 + i % 64];
  return (i / 64 % 2 == 0 ? byte & 15 : byte >> 4) | ggml_two_bits(b + 128, i) << 4;
}

// Unpacks the eight scales and the eight minima of a block of Q4_K or Q5_K. They are stored as
// numbers of six bits in 12 bytes; the block has one factor for the scales and one for the minima.
struct GgmlScalesAndMinima {
  float scale[8], minimum[8];

  explicit GgmlScalesAndMinima(const uint8_t* b) {
    const float d = half_at(b), dmin = half_at(b + 2);
    const uint8_t* packed = b + 4;
    for (int k = 0; k < 4; ++k) {
      scale[k] = d * static_cast<float>(packed[k] & 63);
      minimum[k] = dmin * static_cast<float>(packed[k + 4] & 63);
      const int low = packed[k + 8] & 15, upper = packed[k + 8] >> 4;
      scale[k + 4] = d * static_cast<float>(low | (packed[k] >> 6 << 4));
      minimum[k + 4] = dmin * static_cast<float>(upper | (packed[k + 4] >> 6 << 4));
    }
  }
};

// Returns half of the value of an E8M0 scale.
inline float ggml_e8m0_half(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? uint32_t{0x200000} << e : (uint32_t{e} - 1) << 23);
}

// The four-bit types that are not linear have these levels.
inline constexpr std::array<int8_t, 16> kGgmlCurve = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

// Returns the scale of the k-th 32 weights of a block of IQ4_XS.
inline float ggml_iq4_xs_scale(const uint8_t* b, int k) {
  const int scale = nibble_at(b + 4, k) | (u16_at(b + 2) >> 2 * k & 3) << 4;
  return half_at(b) * static_cast<float>(scale - 32);
}

// These decode the types whose codes are points of a grid (ggml_grid_blocks.cpp).
GgmlBlockDecoder decode_iq1_s, decode_iq1_m, decode_iq2_xxs, decode_iq2_xs, decode_iq2_s,
    decode_iq3_xxs, decode_iq3_s;

}  // namespace walsh
