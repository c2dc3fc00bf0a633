// Completes inputs of integer products that a test has filled with values and scales.
#pragma once

#include "kernels/ops.h"

namespace walsh::test {

// Sets what follows from the values and scales of m tokens: the sums over 32 columns, and the
// scales of second planes, on whose ratio to the first ones products rely.
inline void complete_activations(ActivationsI8& x, int64_t m) {
  for (size_t i = 0; i < x.sums.size(); ++i) {
    x.sums[i] = 0;
    for (size_t c = 0; c < 32; ++c)
      x.sums[i] += x.q[i * 32 + c];
  }
  for (int64_t t = 0; t < m && x.planes == 2; ++t) {
    float* first = x.scales.data() + 2 * t * x.groups();
    for (int64_t g = 0; g < x.groups(); ++g)
      first[x.groups() + g] = first[g] / kPlaneRatio;
  }
}

}  // namespace walsh::test
