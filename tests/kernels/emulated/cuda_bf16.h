// Defines bf16 as kernels see it (emulated/device.h).
#pragma once

#include "base/half.h"

struct __nv_bfloat16 {
  uint16_t bits = 0;
};
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return {walsh::f32_to_bf16(x)};
}
inline float __bfloat162float(__nv_bfloat16 x) {
  return walsh::bf16_to_f32(x.bits);
}
