// Instructions on the host (emulated/device.h).
#pragma once

#include "kernels/emulated/device.h"

namespace walsh::cuda {

inline uint32_t permute(uint32_t low, uint32_t high, uint32_t select) {
  return __byte_perm(low, high, select);
}
template <int Bits>
uint32_t shift_by_product(uint32_t word) {
  return word << Bits;
}

inline uint32_t upper_half(uint32_t word) {
  return word >> 16;
}

}  // namespace walsh::cuda
