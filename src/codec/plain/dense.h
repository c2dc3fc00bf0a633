// Converts values of dense formats to floats.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace walsh {

// Converts `count` values of a type, which need not be aligned, to out[count].
void dense_to_f32(DType type, const void* values, int64_t count, float* out);

}  // namespace walsh
