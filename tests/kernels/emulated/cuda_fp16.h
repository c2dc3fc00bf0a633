// fp16 as kernels see it (emulated/device.h).
#pragma once

#include "base/half.h"

struct __half {
  uint16_t bits = 0;
};
inline __half __float2half_rn(float x) {
  return {walsh::f32_to_f16(x)};
}
inline float __half2float(__half x) {
  return walsh::f16_to_f32(x.bits);
}
