// Encoding whole tensors with error feedback in the basis of their last pass; the counterpart of
// the plain encoders of encode_tensor and trellis_tensor.
#pragma once

#include "quantize/encode/encode_source.h"
#include "quantize/encode/encode_tensor.h"
#include "quantize/feedback/error_feedback.h"

namespace walsh::detail {

class TileDevice;

// Fills the arrays of `tensor` (scalar, bound to `storage`). Scales are chosen by the plain search
// on what a group should become when it is reached, columns are then rounded one by one, and in the
// end all scales of a row are multiplied by the factor that suits H. Of a residual format the
// first pass is plain: the second rounds what is left, and can be fed back then. The bytes do not
// depend on the number of threads or the instruction set. Throws as encode_tensor.
void encode_scalar_with_feedback(const Tensor& tensor, const EncodeOptions& options,
                                 const ErrorFeedback& feedback, ReadRows read_rows,
                                 const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);

// The same for trellis formats, tile by tile: errors reach the tiles behind. Scales are those of
// the original weights, times a factor per row in the end.
void encode_trellis_with_feedback(const Tensor& tensor, const EncodeOptions& options,
                                  const ErrorFeedback& feedback, ReadRows read_rows,
                                  const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);
// The same bytes with the tiles searched, and errors fed back, by a device that knows the code.
void encode_trellis_with_feedback_on(TileDevice& device, const Tensor& tensor,
                                     const EncodeOptions& options, const ErrorFeedback& feedback,
                                     ReadRows read_rows, const TensorStorage& storage,
                                     ThreadPool& pool, ErrorSum& errors);

// All kinds of codes with errors fed back in two directions (two_sided.h); `outputs` has the size
// of the rows.
// Needs memory for three times the tensor in floats and twice its rows squared. `device` searches
// the tiles of trellis codes unless it is null; others take no notice of it.
void encode_scalar_two_sided(TileDevice* device, const Tensor& tensor, const EncodeOptions& options,
                             const ErrorFeedback& inputs, const ErrorFeedback& outputs,
                             ReadRows read_rows, const TensorStorage& storage, ThreadPool& pool,
                             ErrorSum& errors);
void encode_trellis_two_sided(TileDevice* device, const Tensor& tensor,
                              const EncodeOptions& options, const ErrorFeedback& inputs,
                              const ErrorFeedback& outputs, ReadRows read_rows,
                              const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);

void encode_product_two_sided(TileDevice* device, const Tensor& tensor,
                              const EncodeOptions& options, const ErrorFeedback& inputs,
                              const ErrorFeedback& outputs, ReadRows read_rows,
                              const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);

}  // namespace walsh::detail
