// Declares the two kernels of weight_side/weight_side.h. A launch takes one pass of one product.
#pragma once

#include "base/cuda/device.h"
#include "kernels/cuda/weights/weight_tile.cuh"

namespace walsh::cuda::detail {

struct WeightSideIo {
  const void* x = nullptr;  // It is float (vector) or bf16 (matrix) [m][ldx].
  int64_t ldx = 0;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  int rows = 0, m = 0;
  bool add = false;
};

// Codes with more 16-byte vectors per lane than this, and those with a table, have no kernel.
inline constexpr int kWeightSideVectorsOfCodes = 4;
void weight_side_vector(DecoderKind decoder, const PassView& w, const WeightSideIo& io,
                        Stream stream);
void weight_side_matrix(DecoderKind decoder, const PassView& w, const WeightSideIo& io,
                        Stream stream);

}  // namespace walsh::cuda::detail
