// Halves as device code knows them (emulated/device.h).
#pragma once

#include <cstdint>

#include "base/half.h"

struct __half {
  uint16_t bits;
};
inline float __half2float(__half h) {
  return walsh::f16_to_f32(h.bits);
}
inline __half __float2half_rn(float x) {
  return {walsh::f32_to_f16(x)};
}
