// Reads tensors of a GGUF file of another program in the formats that walsh computes with.
#pragma once

#include <memory>
#include <string>

#include "codec/tensor.h"
#include "import/gguf_codes.h"
#include "io/checkpoint.h"

namespace walsh {

// Returns the format in which a tensor is read: F32, F16 and BF16 unchanged, blocks of a matrix as
// gguf_code_format says. Other types are dequantized to f16, except MXFP4, whose wider range needs
// bf16. Throws bad_input naming the tensor for types without weights.
const Format& gguf_format(const TensorInfo& info, GgufCodes codes);

// Returns rows [first, first + rows) of the matrix (a vector is one row) in the checkpoint's order.
// The result points into the file where nothing changes, and otherwise owns its memory. Throws
// bad_input naming the tensor for a value or a scale that f16 cannot hold.
Tensor load_gguf_rows(const std::shared_ptr<const Checkpoint>& checkpoint, const TensorInfo& info,
                      GgufCodes codes, int64_t first, int64_t rows);

// Returns a sentence about how the matrices of a GGUF file are read. It is empty if they are read
// unchanged or the checkpoint is no GGUF file.
std::string describe_gguf(const Checkpoint& checkpoint, GgufCodes codes);
// Returns a sentence of warning if matrices to be quantized have fewer than 8 bits per weight
// already.
std::string warn_of_quantized(const Checkpoint& checkpoint);

}  // namespace walsh
