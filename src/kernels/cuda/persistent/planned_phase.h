// Defines a planned phase, which has been described but is not in the program yet.
#pragma once

#include <algorithm>

#include "kernels/cuda/gemv/gemv_args.h"
#include "kernels/cuda/persistent/expert_phase.h"
#include "kernels/cuda/persistent/program.h"

namespace walsh::cuda {

struct PersistentProgram::Planned {
  ProgramPhase phase;
  ExpertPhase experts;  // Most phases have none.
  Arrays arrays;
};

namespace detail {

// Returns how many k-tiles an input has at most if blocks make it themselves. With more, all blocks
// make it together. With fewer, each warp of a pair of blocks makes one k-tile, or a few of several
// rows.
constexpr int most_own_k_tiles(int rows) {
  return rows <= 2 ? 2 * kProgramWarps : kProgramWarps / 2;
}

// Returns whether the phase is divided among blocks by tiles of products.
inline bool has_tiles(const ProgramPhase& phase) {
  return phase.kind == PhaseKind::matmul || phase.kind == PhaseKind::inputs;
}

// Allocates room for whole k-tiles of each row, with the tags of "not yet written", unless the
// array has it already. Returns false if the array was made for another number of values.
bool make_exchange(ExchangeArray& array, int64_t floats, int rows = 1);

// Returns whether blocks can make this form of an input.
bool can_make(const InputSource& source, const InputForm& form);

// Returns whether `m` is a float32 matrix of this shape, whose rows blocks can multiply.
inline bool are_float_rows(const DenseMatrix& m, int64_t rows, int64_t cols) {
  return m.type == DType::f32 && m.rows == rows && m.cols == cols;
}

// Returns ProgramPhase::segment for an input.
uint16_t segment_of(const FormView& form);

}  // namespace detail
}  // namespace walsh::cuda
