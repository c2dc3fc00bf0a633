// Multiplies with dequantized weights: dequantizes them slice by slice, and leaves the product
// (GEMM) to cuBLASLt.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/gemm/row_matmul.h"

namespace walsh::cuda {

// Multiplies by cuBLASLt. It owns the library's handle, one workspace, the scratch of dequantized
// weights, and the chosen algorithm per shape. The constructor takes all memory, so calls can be
// captured into a graph once their shapes have been multiplied. Calls must be ordered on one stream
// at a time.
//
// Products of 16-bit values are exact, and sums are float32. Weights in f32 need f32 rows and are
// multiplied in float32 throughout (no TF32: its 11 bits would round the weights).
class DequantizedGemm {
 public:
  // Allocates the memory. Throws io naming the library if it cannot be loaded, and limit if memory
  // runs out. A matrix larger than the scratch is multiplied in slices of rows.
  explicit DequantizedGemm(uint64_t scratch_bytes);
  ~DequantizedGemm();
  DequantizedGemm(DequantizedGemm&&) noexcept;
  DequantizedGemm& operator=(DequantizedGemm&&) noexcept;

  // Returns why the library cannot be used, empty if it can. It serves messages before memory is
  // planned.
  static std::string unavailable_reason();
  // Returns how much scratch memory a whole [rows, cols] matrix needs.
  static uint64_t scratch_for(int64_t rows, int64_t cols);

  // Computes products of the same m vectors (any m >= 1). The type of x must be that of dense
  // weights. Coded weights are dequantized to it, f16 or bf16.
  void multiply(std::span<const RowMatmul> products, const Rows& x, int64_t m, Stream stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh::cuda
