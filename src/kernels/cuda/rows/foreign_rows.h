// Rows in another framework's memory and types: inputs and results of products.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/rows/prepare.h"

namespace walsh::cuda {

// m rows of `width` values, float32 or 16 bits, `stride` values from row to row.
struct ForeignRows {
  const void* data = nullptr;
  DType type = DType::f32;
  int64_t stride = 0;
  int64_t width = 0;
};

// prepare() for rows of another type, with the bits of float rows with the same values.
void prepare(const ForeignRows& source, std::span<const InputForm> forms, int64_t m, Stream stream);

// out[t * stride + column] = x[t * ldx + column] rounded to the nearest fp16 or bf16. One launch.
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
