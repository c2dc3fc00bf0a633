// Answers calls that need a GPU in a build without CUDA.
#pragma once

#include "base/cuda/device.h"
#include "walsh/error.h"

namespace walsh::cuda {

// Throws usage with the reason why no GPU can be used.
[[noreturn]] inline void unavailable() {
  throw Error(ErrorCode::usage, "CUDA", unavailable_reason());
}

}  // namespace walsh::cuda
