// Helpers that the decoders of ggml's blocks share.
#pragma once

#include <cstdint>

#include "base/half.h"

namespace walsh {

// Decodes one block.
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

// Code k of an array of nibbles; the low nibble of a byte comes first.
inline int nibble_at(const uint8_t* p, int k) {
  return p[k / 2] >> (k % 2 * 4) & 15;
}

// The types whose codes are points of a grid (ggml_grid_blocks.cpp).
GgmlBlockDecoder decode_iq1_s, decode_iq1_m, decode_iq2_xxs, decode_iq2_xs, decode_iq2_s,
    decode_iq3_xxs, decode_iq3_s;

}  // namespace walsh
