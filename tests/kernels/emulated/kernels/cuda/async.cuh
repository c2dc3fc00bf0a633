// Launches on the host follow each other.
#pragma once

#include "base/half.h"
#include "kernels/emulated/device.h"

namespace walsh::cuda {

inline void allow_next_kernel() {}
inline void wait_previous_kernel() {}
inline void prefetch(const void*) {}
// Two fp16 values.
inline float2 halves(uint32_t word) {
  return {f16_to_f32(static_cast<uint16_t>(word)), f16_to_f32(static_cast<uint16_t>(word >> 16))};
}

}  // namespace walsh::cuda
