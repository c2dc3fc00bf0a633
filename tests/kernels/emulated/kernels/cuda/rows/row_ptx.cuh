// See emulated/device.h.
#pragma once

#include <cmath>

namespace walsh::cuda {

inline float near_reciprocal(float x) {
  return 1 / x;
}

inline float larger(float a, float b) {
  const float x = std::fabs(a), y = std::fabs(b);
  return x > y || x != x ? x : y;
}

}  // namespace walsh::cuda
