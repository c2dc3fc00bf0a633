// Emulates what products of warp groups need around them: products end at once.
#pragma once

#include <cstdint>

#include "kernels/emulated/device.h"

namespace walsh::cuda::detail {

template <typename T>
void pin(T&) {}
inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int Pending>
void wgmma_wait() {}
template <int Registers>
void give_registers() {}
template <int Registers>
void take_registers() {}

inline int count_arrival(int* counter) {
  return (*counter)++;
}

inline uint64_t swizzled_operand(uint32_t address) {
  return address / 16;
}

}  // namespace walsh::cuda::detail
