// Emulates float instructions.
#pragma once

#include <cmath>

#include "kernels/emulated/device.h"

namespace walsh::cuda {

inline float near_reciprocal(float x) {
  return 1 / x;
}
inline float larger_magnitude(float a, float b) {
  const float x = std::fabs(a), y = std::fabs(b);
  return x != x || x > y ? x : y;
}

}  // namespace walsh::cuda
