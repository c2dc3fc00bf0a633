// Noise that looks like the rounding error of a rotated format, without encoding anything.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "formats/tensor.h"

namespace walsh {

// What is left of a matrix by a code of relative squared error `nmse` whose scale is the least
// squares one: (1 - D) W + sqrt(D (1 - D)) N, the test channel of rate-distortion theory. The
// shrinking is part of it: such a code returns less energy than it got, by exactly its error. N has
// per row and block of `block` columns the rms of W in the balanced basis, which `scales` (or
// empty) leads to: the rotation spreads the error evenly over a block. Gaussian noise looks the
// same in every basis, so nothing is rotated.
//
// [rows, cols] as f32. The same for the same seed and any number of threads. 0 <= nmse < 1.
Tensor with_rounding_noise(const Tensor& matrix, std::span<const float> scales, int64_t block,
                           double nmse, uint64_t seed, ThreadPool& pool);

}  // namespace walsh
