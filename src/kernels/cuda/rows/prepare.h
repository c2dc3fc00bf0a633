// The inputs of matrix products made on the device: normed, gated, padded, rotated, quantized.
#pragma once

#include <cstdint>
#include <span>

#include "arch/layer.h"
#include "kernels/cuda/weights/matrix.h"
#include "rotate/rotation.h"

namespace walsh::cuda {

inline constexpr int kMaxForms = 2;  // forms of one input that are made in one launch

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

// Makes every form of m inputs: in one launch, or, of many rows, in one each.
void prepare(const InputSource& source, std::span<const InputForm> forms, int64_t m, Stream stream);

}  // namespace walsh::cuda
