// A phase of a program on its way into it.
#pragma once

#include <algorithm>

#include "kernels/cuda/gemv/gemv_args.h"
#include "kernels/cuda/persistent/expert_phase.h"
#include "kernels/cuda/persistent/program.h"

namespace walsh::cuda {

struct PersistentProgram::Planned {
  ProgramPhase phase;
  ExpertPhase experts;  // of which most phases are none
  Arrays arrays;
};

namespace detail {

// Inputs of more k-tiles are made by all blocks together, of others a k-tile by every warp of a
// pair.
inline constexpr int kOwnKTiles = 2 * kProgramWarps;

// Room for whole k-tiles, which no write has been to, unless the array has it. False if it has
// another number of values.
bool make_exchange(ExchangeArray& array, int64_t floats);

// Whether blocks can make this form of an input.
bool can_make(const InputSource& source, const InputForm& form);

// Whether it is a matrix whose rows blocks multiply in float32.
inline bool are_float_rows(const DenseMatrix& m, int64_t rows, int64_t cols) {
  return m.type == DType::f32 && m.rows == rows && m.cols == cols;
}

// ProgramPhase::segment of an input.
uint16_t segment_of(const FormView& form);

}  // namespace detail
}  // namespace walsh::cuda
