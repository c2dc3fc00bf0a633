// See cuda_fp16.h.
#pragma once

#include <bit>
#include <cstdint>

struct __nv_bfloat16 {
  uint16_t bits;
};
// To zero: no kernel that runs on the host stores any.
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return {static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)};
}
