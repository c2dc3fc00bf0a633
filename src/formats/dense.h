// Values of dense formats as floats.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace walsh {

// `count` values of a type, which need no alignment, to out[count].
void dense_to_f32(DType type, const void* values, int64_t count, float* out);

}  // namespace walsh
