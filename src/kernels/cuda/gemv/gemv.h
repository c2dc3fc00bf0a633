// Decoding: the inputs of products prepared on the device, and products with 1 to 16 vectors.
#pragma once

#include <cstdint>
#include <span>

#include "arch/layer.h"
#include "kernels/cuda/weights/matrix.h"
#include "rotate/rotation.h"

namespace walsh::cuda {

inline constexpr int64_t kMaxVectors = 16;
inline constexpr int kMaxForms = 2;     // forms of one input that are made in one launch
inline constexpr int kMaxProducts = 3;  // products of one input in one launch

// One form of an input: rotated by `rotation` (hadamard or none) after zero-padding to `padded`
// columns (padded_cols of the format: the row that the rotation's segments are cut from), then
// quantized (`out`) or stored as float rows (`rows`, stride in elements; with the type of the dense
// matrix product that reads it).
struct InputForm {
  Rotation rotation;
  int64_t padded = 0;
  Activations* out = nullptr;
  void* rows = nullptr;  // [m][stride] of `row_type`, when out is null
  int64_t stride = 0;
  DType row_type = DType::f32;
};

// Where an input comes from, in this order of steps:
//   v = x[t][0..width)                    float [m][ldx]
//   v = function(v) * up[t][..]           if up (ld ldx)
//   v = v * gain / sqrt(mean(v^2) + eps)  if gain
struct InputSource {
  const float* x = nullptr;
  const float* up = nullptr;
  const float* gain = nullptr;  // a weight: read before the kernel in front has ended
  float eps = 0;
  int64_t ldx = 0;
  int64_t width = 0;
  GateFunction function = GateFunction::silu;
};

// Makes every form of m inputs in one launch.
void prepare(const InputSource& source, std::span<const InputForm> forms, int64_t m, Stream stream);

// y[t * ldy + row] (+)= bias[row] + sum over passes of W_p x_p.
struct Product {
  const Matrix* pass[2] = {};  // second: of a residual format, or null
  const Activations* input[2] = {};
  const float* bias = nullptr;  // [rows] or null
  float* y = nullptr;
  int64_t ldy = 0;
  bool add = false;  // to what y holds, e.g. the residual stream
};

// Products of the same m <= 16 vectors, in one launch where codes, shapes and inputs allow it (one
// more per residual pass). With i = the integer sum over the columns of one scale group of both
// operands,
//   y = fma(i, (scale * unit) * x_scale, y), then, once per group of inputs with offsets,
//   y = fma(offset, sum(q) * x_scale, y)
// over runs of columns whose sums are added in order, and so are planes. Integer sums are exact;
// runs depend on the device and the shapes of the launch, not on m.
void multiply(std::span<const Product> products, int64_t m, Stream stream);

// The same for a plain matrix with m <= 16 float rows x[m][ldx].
struct DenseProduct {
  const DenseMatrix* weights = nullptr;
  const float* x = nullptr;
  int64_t ldx = 0;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  bool add = false;
};
void multiply(std::span<const DenseProduct> products, int64_t m, Stream stream);

}  // namespace walsh::cuda
