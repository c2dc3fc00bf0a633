// Halves on the host (kernels/emulated/device.h), as far as kernels that run there use them.
#pragma once

#include "base/half.h"
#include "kernels/emulated/device.h"

struct __half {
  uint16_t bits;
};
struct __half2 {
  __half x, y;
};
inline float __half2float(__half h) {
  return walsh::f16_to_f32(h.bits);
}
inline float2 __half22float2(__half2 h) {
  return {__half2float(h.x), __half2float(h.y)};
}
inline __half2 __float2half2_rn(float x) {
  return {{walsh::f32_to_f16(x)}, {walsh::f32_to_f16(x)}};
}
inline __half2 __hsub2(__half2 a, __half2 b) {
  return {{walsh::f32_to_f16(__half2float(a.x) - __half2float(b.x))},
          {walsh::f32_to_f16(__half2float(a.y) - __half2float(b.y))}};
}
