// Tensors of somebody else's GGUF file as walsh computes with them.
#pragma once

#include <memory>
#include <string>

#include "formats/tensor.h"
#include "import/gguf_codes.h"
#include "io/checkpoint.h"

namespace walsh {

// How a tensor is given: F32, F16 and BF16 as they are, blocks of a matrix as gguf_code_format has
// it. What is dequantized becomes f16, but MXFP4, whose range is wider, bf16. Throws bad_input
// naming the tensor for types without weights.
const Format& gguf_format(const TensorInfo& info, GgufCodes codes);

// Rows [first, first + rows) of the matrix (a vector is one row) in the order of the checkpoint
// that the file was made from. In place where nothing changes, otherwise in memory of its own.
// Throws bad_input naming the tensor for a value or a scale that f16 does not hold.
Tensor load_gguf_rows(const std::shared_ptr<const Checkpoint>& checkpoint, const TensorInfo& info,
                      GgufCodes codes, int64_t first, int64_t rows);

// One sentence about what becomes of the matrices of a GGUF file; empty if that is nothing, and for
// a checkpoint that is no GGUF file.
std::string describe_gguf(const Checkpoint& checkpoint, GgufCodes codes);
// One sentence if matrices that shall be quantized have less than 8 bits per weight already.
std::string warn_of_quantized(const Checkpoint& checkpoint);

}  // namespace walsh
