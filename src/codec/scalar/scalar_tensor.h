// Encodes a whole tensor in a scalar format, row by row.
#pragma once

#include "base/thread_pool.h"
#include "codec/encode/encode_source.h"
#include "codec/feedback/error_feedback.h"

namespace walsh::detail {

// Fills the arrays of `tensor`, which is bound to `storage`. The bytes do not depend on the number
// of threads or the instruction set. Throws as encode_tensor.
void encode_scalar(const Tensor& tensor, const EncodeOptions& options, ReadRows read_rows,
                   const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);

// The same with error feedback in the basis of the last pass. Scales are chosen by the plain search
// on what a group should become when it is reached, columns are then rounded one by one, and in the
// end all scales of a row are multiplied by the factor that suits H. Of a residual format the
// first pass is plain: the second rounds what is left, and can be fed back then.
void encode_scalar_with_feedback(const Tensor& tensor, const EncodeOptions& options,
                                 const ErrorFeedback& feedback, ReadRows read_rows,
                                 const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);

// Encodes with errors fed back in two directions (codec/feedback/two_sided.h). Nothing runs on
// `device`, which may be null.
void encode_scalar_two_sided(TileDevice* device, const Tensor& tensor, const EncodeOptions& options,
                             const ErrorFeedback& inputs, const ErrorFeedback& outputs,
                             ReadRows read_rows, const TensorStorage& storage, ThreadPool& pool,
                             ErrorSum& errors);

}  // namespace walsh::detail
