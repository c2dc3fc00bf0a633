// Stores keys and values as rows of fp16.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "kernels/ops.h"

namespace walsh {

// Stores a row of n values as fp16. Values beyond its range become its largest number, because an
// infinite key or value would make all softmax weights NaN. NaN stays NaN.
inline void store_half_row(const Ops& ops, const float* x, int64_t n, uint16_t* out) {
  ops.to_f16(x, n, out);
  for (int64_t i = 0; i < n; ++i)
    out[i] = without_infinity(out[i]);
}

}  // namespace walsh
