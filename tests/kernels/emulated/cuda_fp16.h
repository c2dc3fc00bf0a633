// Defines fp16 as kernels see it (emulated/device.h).
#pragma once

#include <cmath>

#include "base/half.h"
#include "kernels/emulated/vector_types.h"

struct __half {
  uint16_t bits = 0;
};
struct __half2 {
  __half x, y;
};
inline __half __float2half_rn(float x) {
  return {walsh::f32_to_f16(x)};
}
inline float __half2float(__half x) {
  return walsh::f16_to_f32(x.bits);
}
inline float2 __half22float2(__half2 x) {
  return {__half2float(x.x), __half2float(x.y)};
}
inline __half2 __float2half2_rn(float x) {
  return {__float2half_rn(x), __float2half_rn(x)};
}
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
inline __half2 __hsub2(__half2 a, __half2 b) {
  return {__float2half_rn(__half2float(a.x) - __half2float(b.x)),
          __float2half_rn(__half2float(a.y) - __half2float(b.y))};
}
inline __half2 __hmul2(__half2 a, __half2 b) {
  return {__float2half_rn(__half2float(a.x) * __half2float(b.x)),
          __float2half_rn(__half2float(a.y) * __half2float(b.y))};
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return {__float2half_rn(std::fma(__half2float(a.x), __half2float(b.x), __half2float(c.x))),
          __float2half_rn(std::fma(__half2float(a.y), __half2float(b.y), __half2float(c.y)))};
}
inline __half __ushort_as_half(unsigned short bits) {
  return {bits};
}
inline __half2 __half2half2(__half x) {
  return {x, x};
}
