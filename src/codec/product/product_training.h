// Trains a codebook on one tensor (pq3:layer).
#pragma once

#include <array>
#include <cstdint>

#include "base/thread_pool.h"
#include "codec/encode/encode_tensor.h"
#include "codec/product/product.h"
#include "rotate/rotation.h"

namespace walsh::detail {

using Codebook256 = std::array<int8_t, kCodebookBytes>;  // Its shape is [256][4].

// Runs k-means on the vectors of rows taken evenly from the tensor, each divided by its group's
// scale, with the free signs of the residuals in the assignment. It starts from the code's own
// codebook and keeps its residual. Sums are whole numbers, so the result does not depend on threads
// or instruction sets. The shortest vector comes first.
Codebook256 train_codebook(const ProductCode& code, const Rotator& rotator, int64_t rows,
                           int64_t cols, ReadRows read_rows, ThreadPool& pool);

}  // namespace walsh::detail
