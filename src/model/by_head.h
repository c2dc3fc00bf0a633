// Prepares matrices that are multiplied head by head (step::MultiplyHeads).
#pragma once

#include "base/thread_pool.h"
#include "codec/tensor.h"

namespace walsh {

// Returns the matrix as plain numbers in the basis of the checkpoint: of the type in which it is
// stored if that is plain, otherwise fp16. The heads' parts [rows, cols] lie below each other; with
// `transposed`, each becomes [cols, rows]. `output` rotates outputs back, as Linear::output does;
// it may be null.
Tensor decode_heads(const Tensor& stored, const Rotator* output, int64_t heads, bool transposed,
                    ThreadPool& pool);

}  // namespace walsh
