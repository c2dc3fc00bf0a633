// Prompts: products with more vectors than a decoding step has.
//
// Two ways, of which the faster depends on m:
//   multiply_many    int8 inputs as in decoding; weights are decoded in registers, tile by tile
//   PromptProducts   16-bit (or f32) input rows; weights are reconstructed into a scratch buffer,
//                    slice by slice, and multiplied by cuBLASLt, which is loaded at run time
// The second is also how plain (f16, bf16, f32) weights meet many vectors, and the more accurate
// one: weights and inputs are rounded to 16 bits once, sums are float32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/weights/matrix.h"
#include "kernels/cuda/gemv/gemv.h"
#include "rotate/rotation.h"

namespace walsh::cuda {

// The basis of input rows: that of the model, or that of the stored weights (first pass).
enum class Basis : uint8_t { original, rotated };

// Input vectors, row-major on the device, zero from the logical width to the product's `cols`.
// `stride` is in elements; rows are 16-byte aligned.
//
// Which 16-bit type: f16 keeps three more bits than bf16, but holds only 65504. An input behind an
// RMSNorm is bounded by sqrt(width) * max |gain| (a rotation keeps the norm), so that f16 cannot
// overflow there; inputs of o and down have no bound and are bf16.
struct Rows {
  const void* data = nullptr;  // [m][stride] of `type`
  int64_t stride = 0;
  DType type = DType::bf16;
  Basis basis = Basis::original;
};

// y[t * ldy + row] (+)= bias[row] + W x_t, with W either the sum of coded passes or a plain matrix.
struct RowProduct {
  const Matrix* pass[2] = {};          // second: of a residual format, or null
  Rotation rotation[2];                // of the passes: hadamard or none
  const DenseMatrix* dense = nullptr;  // instead of passes
  int64_t cols = 0;                    // padded_cols of the format; dense: the columns
  const float* bias = nullptr;         // [rows] or null
  float* y = nullptr;
  int64_t ldy = 0;
  bool add = false;  // to what y holds

  int64_t rows() const { return dense ? dense->rows : pass[0]->rows; }
};

// Rows [row_begin, row_end) of a coded product's weights as 16-bit floats (f16 or bf16, rounded to
// nearest), out[(row - row_begin) * cols + column]. row_begin is a multiple of 16. The rotated
// basis is of single passes only.
void reconstruct(const RowProduct& product, Basis basis, DType type, int64_t row_begin,
                 int64_t row_end, void* out, Stream stream);

// Products by cuBLASLt. Owns the library's handle, one workspace, the scratch of reconstructed
// weights and the chosen algorithm per shape; all memory is taken by the constructor, so that calls
// can be captured into a graph once their shapes have been multiplied once. Calls
// must be ordered on one stream at a time.
//
// Arithmetic: products of 16-bit values are exact, sums float32. Weights in f32 need f32 rows and
// are multiplied in float32 throughout (no TF32: its 11 bits would round the weights).
class PromptProducts {
 public:
  // Throws io naming the library when it cannot be loaded, limit when memory runs out. A matrix
  // larger than the scratch is multiplied in slices of rows.
  explicit PromptProducts(uint64_t scratch_bytes);
  ~PromptProducts();
  PromptProducts(PromptProducts&&) noexcept;
  PromptProducts& operator=(PromptProducts&&) noexcept;

  // Why the library cannot be used, empty if it can: for messages before memory is planned.
  static std::string unavailable_reason();
  // Scratch that holds a whole [rows, cols] matrix, and the device memory that an object with some
  // scratch takes altogether.
  static uint64_t scratch_for(int64_t rows, int64_t cols);
  static uint64_t device_bytes(uint64_t scratch_bytes);

  // Products of the same m vectors (any m >= 1). The type of x is that of dense weights; for coded
  // ones it is f16 or bf16 and chooses what they are reconstructed to.
  void multiply(std::span<const RowProduct> products, const Rows& x, int64_t m, Stream stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// As multiply() of gemv/gemv.h for any m: int8 inputs, the same integer sums and the same scales,
// float32 additions in column order (or per quarter of the columns where rows are few). A token's
// result does not depend on its neighbours. Chooses between a tile kernel and slices of 16.
void multiply_many(std::span<const Product> products, int64_t m, Stream stream);

// The number of vectors from which PromptProducts is faster than multiply_many for a coded format
// on a GPU with tensor cores of sm_90 (measured, docs/gpu.md), and the largest of all formats.
int64_t rows_from(const Format& format);
inline constexpr int64_t kMaxRowsFrom = 128;

}  // namespace walsh::cuda
