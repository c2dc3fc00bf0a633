// Emulates instructions (emulated/device.h).
#pragma once

#include "kernels/emulated/device.h"

namespace walsh::cuda {

// Bit 3 of a selector's nibble asks for eight times the byte's sign.
inline uint32_t permute(uint32_t low, uint32_t high, uint32_t select) {
  uint32_t bytes = __byte_perm(low, high, select);
  for (int i = 0; i < 4; ++i)
    if ((select >> (4 * i) & 8) != 0)
      bytes = (bytes & ~(255u << 8 * i)) | ((bytes >> (8 * i) & 128) != 0 ? 255u << 8 * i : 0);
  return bytes;
}
template <int Bits>
uint32_t shift_by_product(uint32_t word) {
  return word << Bits;
}

inline uint32_t upper_half(uint32_t word) {
  return word >> 16;
}

}  // namespace walsh::cuda
