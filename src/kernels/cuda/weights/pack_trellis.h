// Repacks trellis codes into fragment order (weights/matrix.h).
#pragma once

#include "kernels/cuda/weights/matrix.h"

namespace walsh::cuda::detail {

// Returns how many columns a scale holds for: 256, or 32 if a row ends with several column blocks.
int64_t trellis_group(int64_t cols);

// Sets codes, scales and row factors of `m`, the matrix of a [rows, cols] tensor.
void pack_trellis(const Matrix& m, const Format& format, int64_t cols, const StoredPass& stored,
                  Stream stream);

}  // namespace walsh::cuda::detail
