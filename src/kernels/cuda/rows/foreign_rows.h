// Takes inputs and results of products as rows in another framework's memory and types.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/rows/prepare.h"

namespace walsh::cuda {

// Describes m rows of `width` values, float32 or 16 bits, which are `stride` values apart.
struct ForeignRows {
  const void* data = nullptr;
  DType type = DType::f32;
  int64_t stride = 0;
  int64_t width = 0;
};

// Does what prepare() does, with the bits that float rows of the same values would give.
void prepare(const ForeignRows& source, std::span<const InputForm> forms, int64_t m, Stream stream);

// Describes out[t * stride + column] = x[t * ldx + column], computed in one launch and rounded to
// fp16 or bf16.
struct RoundedRows {
  const float* x = nullptr;
  int64_t ldx = 0;
  int64_t m = 0, width = 0;
  void* out = nullptr;
  DType type = DType::bf16;
  int64_t stride = 0;
};
void round_rows(const RoundedRows& rows, Stream stream);

}  // namespace walsh::cuda
