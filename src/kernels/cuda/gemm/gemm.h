// GEMM computes products with more vectors than a decode step has, which the tensor cores bound.
//
// There are two ways, of which the faster depends on m:
//   int8_gemm        int8 inputs as for gemv(); weights are decoded in registers, tile by tile, or
//                    by the kernels of batch_gemm.h
//   DequantizedGemm  16-bit (or f32) input rows; weights are dequantized into a scratch buffer,
//                    slice by slice, and multiplied by cuBLASLt, which is loaded at run time
// The second is also how plain (f16, bf16, f32) weights meet many vectors, and the more accurate
// one: weights and inputs are rounded to 16 bits once, sums are float32.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/gemm/batch_gemm.h"
#include "kernels/cuda/gemm/dequantized_gemm.h"
#include "kernels/cuda/gemv/gemv.h"

namespace walsh::cuda {

// Does what gemv() does for any m: int8 inputs, the same integer sums and the same scales, float32
// additions in column order (or per quarter of the columns where rows are few). A token's result
// does not depend on its neighbours. The function chooses between kernels for batches, where there
// is space for them and they know the codes, a tile kernel, and slices of 16.
void int8_gemm(std::span<const Matmul> products, int64_t m, Stream stream,
               const BatchSpace& space = {});

// Returns from how many vectors on DequantizedGemm is faster than int8_gemm by tiles for a coded
// format, on a GPU with tensor cores of sm_90 (measured, docs/gpu.md), and the largest such number
// of all formats. Codes that BatchSpace::knows have kernels for batches up to kMaxBatch.
int64_t rows_from(const Format& format);
inline constexpr int64_t kMaxRowsFrom = 128;

}  // namespace walsh::cuda
