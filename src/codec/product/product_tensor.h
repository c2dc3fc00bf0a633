// Encodes a whole tensor in a product format, with the universal codebook or one of its own.
#pragma once

#include "codec/encode/encode_source.h"
#include "codec/encode/encode_tensor.h"
#include "codec/feedback/error_feedback.h"

namespace walsh::detail {

// Fills the arrays of `tensor`, which is bound to `storage`. The bytes do not depend on the number
// of threads or the instruction set. Throws as encode_tensor.
void encode_product(const Tensor& tensor, const EncodeOptions& options, ReadRows read_rows,
                    const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);

// Encodes with errors fed back in two directions (codec/feedback/two_sided.h). `device` is not used
// and may be null.
void encode_product_two_sided(TileDevice* device, const Tensor& tensor,
                              const EncodeOptions& options, const ErrorFeedback& inputs,
                              const ErrorFeedback& outputs, ReadRows read_rows,
                              const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);

}  // namespace walsh::detail
