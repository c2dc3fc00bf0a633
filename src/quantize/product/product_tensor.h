// Encodes a whole tensor in a product format, with the universal codebook or one of its own.
#pragma once

#include "quantize/encode/encode_source.h"
#include "quantize/encode/encode_tensor.h"

namespace walsh::detail {

// Fills the arrays of `tensor`, which is bound to `storage`. The bytes do not depend on the number
// of threads or the instruction set. Throws as encode_tensor.
void encode_product(const Tensor& tensor, const EncodeOptions& options, ReadRows read_rows,
                    const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);

}  // namespace walsh::detail
