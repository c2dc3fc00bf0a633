// Prepares the inputs of matrix products on the device by norm, gate, padding, rotation and
// quantization.
#pragma once

#include <cstdint>
#include <span>

#include "arch/layer.h"
#include "kernels/cuda/weights/matrix.h"
#include "rotate/rotation.h"

namespace walsh::cuda {

inline constexpr int kMaxForms = 2;  // One launch makes at most this many forms of one input.

// Describes a form of an input, which is zero-padded to `padded` columns (padded_cols of the
// format, which determine the rotation's segments), rotated by `rotation` (hadamard or none), then
// either quantized (`out`) or stored as rows of `row_type` for a dense matrix product (`rows`,
// stride in elements).
struct InputForm {
  Rotation rotation;
  int64_t padded = 0;
  Activations* out = nullptr;
  void* rows = nullptr;  // Its shape is [m][stride], of `row_type`; it is written if out is null.
  int64_t stride = 0;
  DType row_type = DType::f32;
};

// An input has this source, and these steps are applied to it, in this order:
//   v = x[t][0..width)                    float [m][ldx]
//   v = function(v) * up[t][..]           if up (ld ldx)
//   v = v * gain / sqrt(mean(v^2) + eps)  if gain
struct InputSource {
  const float* x = nullptr;
  const float* up = nullptr;
  // It is a weight, which is read before the preceding kernel has ended.
  const float* gain = nullptr;
  float eps = 0;
  int64_t ldx = 0;
  int64_t width = 0;
  GateFunction function = GateFunction::silu;
};

// Makes every form of m inputs in one launch or, for many rows, in one launch per form.
void prepare(const InputSource& source, std::span<const InputForm> forms, int64_t m, Stream stream);

}  // namespace walsh::cuda
