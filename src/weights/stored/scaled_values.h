// Reads small floats with scales beside them, as floats that any computer has.
#pragma once

#include "weights/stored/form.h"

namespace walsh {

// Opens F8_E4M3 [rows, cols] times scales. Each block has one; if `block_rows` is 0, one scale is
// for all. The products are f32. Throws bad_input for other types and shapes.
StoredMatrixPtr open_fp8(const StoredArray& values, const StoredArray& scales, int64_t block_rows,
                         int64_t block_cols);

// Opens values U8 [..., rows, groups, 16], whose low half-byte comes first, times powers of two U8
// [..., rows, groups]. The result is the matrix of all rows, which has 32 * groups columns. The
// products are bf16, which holds them exactly. Throws bad_input for other types and shapes.
StoredMatrixPtr open_mxfp4(const StoredArray& blocks, const StoredArray& scales);

// Opens values U8 [rows, cols / 2], whose low half-byte comes first, times scales [rows, groups] /
// `divisor`. The products are f32. If `powers`, the scales are powers of two in U8.
StoredMatrixPtr open_fp4(const StoredArray& values, const StoredArray& scales, bool powers,
                         float divisor);

}  // namespace walsh
