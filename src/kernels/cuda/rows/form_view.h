// Describes product inputs, validated, as kernels take them.
#pragma once

#include <cstdint>

#include "kernels/cuda/rows/prepare.h"

namespace walsh::cuda {

// Squares are summed in this many shares per row: k-tile i belongs to share i % 16.
inline constexpr int kShares = 16;
inline constexpr int kLaneColumns = 8;

// Holds InputSource in the form that kernels take.
struct InputView {
  const float* x = nullptr;
  const float* up = nullptr;
  const float* gain = nullptr;
  float eps = 0;
  int64_t ldx = 0;
  int width = 0;
  bool vectors = false;  // a lane's 8 columns can be read 16 bytes at a time
  GateFunction function = GateFunction::silu;
  double inverse_width = 0;
};

// Holds InputForm in the form that kernels take.
struct FormView {
  int padded = 0;  // columns that are rotated, padding included
  int full = 0;    // those in whole Hadamard blocks
  int cols = 0;    // quantized columns, a multiple of 256
  int block = 0;   // Hadamard block; 0: no rotation
  bool signs = false;
  uint32_t seed = 0;
  int group = 128;  // columns per scale
  int planes = 1;
  int8_t* q = nullptr;
  float* scales = nullptr;
  int32_t* sums = nullptr;
  void* rows = nullptr;  // output of 16- or 32-bit rows in place of q
  int64_t stride = 0;
  DType row_type = DType::f32;
};

// Returns whether 16 bytes can be read at a time.
inline bool is_aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

// These throw internal for shapes that kernels do not support, usage for rotations that only the
// CPU supports.
InputView input_view(const InputSource& source);
FormView form_view(const InputSource& source, const InputForm& form, int64_t m);

}  // namespace walsh::cuda
