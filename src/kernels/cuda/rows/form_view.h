// Describes product inputs as kernels take them, after checking them.
#pragma once

#include <cstdint>

#include "kernels/cuda/rows/prepare.h"

namespace walsh::cuda {

// Squares are summed in this many shares per row. K-tile i belongs to share i % 16.
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
  // If true, a lane's 8 columns can be read 16 bytes at a time.
  bool vectors = false;
  GateFunction function = GateFunction::silu;
  double inverse_width = 0;
};

// Holds InputForm in the form that kernels take.
struct FormView {
  int padded = 0;  // This many columns are rotated, padding included.
  int full = 0;    // This many are in whole Hadamard blocks.
  int cols = 0;    // This many are quantized, a multiple of 256.
  int block = 0;   // It is the Hadamard block; 0: no rotation.
  bool signs = false;
  uint32_t seed = 0;
  int group = 128;  // A scale holds for this many columns.
  int planes = 1;
  int8_t* q = nullptr;
  float* scales = nullptr;
  int32_t* sums = nullptr;
  // In place of q it gets 16- or 32-bit rows.
  void* rows = nullptr;
  int64_t stride = 0;
  DType row_type = DType::f32;
};

// Returns whether 16 bytes can be read at a time.
inline bool is_aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

// These throw internal for shapes that kernels do not support, and usage for rotations that only
// the CPU supports.
InputView input_view(const InputSource& source);
FormView form_view(const InputSource& source, const InputForm& form, int64_t m);

}  // namespace walsh::cuda
