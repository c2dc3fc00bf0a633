// Encoding of dense and scalar tensors, row by row.
#pragma once

#include "base/thread_pool.h"
#include "quantize/encode/encode_source.h"
#include "quantize/scalar/encoder.h"

namespace walsh::detail {

void encode_rows(const Tensor& tensor, const EncodeOptions& options, ReadRows read_rows,
                 const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);

}  // namespace walsh::detail
