// Noise that imitates the rounding error of a rotated format without encoding anything.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "codec/tensor.h"

namespace walsh {

// Imitates a code with relative squared error D = `nmse` and least-squares scales: (1 - D) W +
// sqrt(D (1 - D)) N, the test channel of rate-distortion theory. The shrinking belongs to it: such
// a code returns less energy than it was given, by exactly its error. N has, per row and block of
// `block` columns, the rms of W in the balanced basis (W times `scales`, or W if empty), because
// the rotation spreads the error evenly over a block. Gaussian noise looks the same in every basis,
// so nothing is rotated.
//
// [rows, cols] as f32. Deterministic in the seed for any number of threads. 0 <= nmse < 1.
Tensor with_rounding_noise(const Tensor& matrix, std::span<const float> scales, int64_t block,
                           double nmse, uint64_t seed, ThreadPool& pool);

}  // namespace walsh
