// Encodes a whole tensor: rotates it, encodes pass by pass, and measures the error. It uses all
// threads of the pool; the bytes do not depend on their number.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "codec/encode/options.h"
#include "codec/tensor.h"

namespace walsh {

class ErrorFeedback;
namespace detail {
class TileDevice;
}

// Fills out[(row_end - row_begin) * cols] with source rows in f32, in the original basis (already
// balanced). It is called from several threads at once, with disjoint ranges. (codec/codec.h
// declares it, too.)
using ReadRows = FunctionRef<void(int64_t row_begin, int64_t row_end, float* out)>;

// Rows are padded with zeros to padded_cols, rotated by rotation[0] and encoded; a residual format
// encodes what is left of the original row after rotation[1]. Dense formats are converted.
// squared_error is the sum of (row - decoded row)^2 in the original basis, squared_norm the sum of
// row^2; both may be null. The result owns its arrays. With `feedback`, in the basis of the last
// pass, scalar and trellis codes are chosen for the least error of the output instead of the
// weights (error_feedback.h); others ignore it. With `outputs` beside it, in the basis of the rows,
// the errors of outputs are fed back, too (two_sided.h). `device` searches the tiles of the trellis
// codes that it knows, if it has the memory; the bytes are the same. Throws limit if a shared
// device has no memory.
//
// Throws bad_input with an empty `where` (the caller knows the tensor's name) for NaN or infinity
// with its row and column, for a value that does not fit (dense f16, or finite input whose rotation
// overflows), and for an impossible shape.
Tensor encode_tensor(const Format& format, const Rotation (&rotation)[2],
                     const EncodeOptions& options, int64_t rows, int64_t cols, ReadRows read_rows,
                     ThreadPool& pool, double* squared_error, double* squared_norm,
                     const ErrorFeedback* feedback = nullptr, detail::TileDevice* device = nullptr,
                     const ErrorFeedback* outputs = nullptr);

}  // namespace walsh
