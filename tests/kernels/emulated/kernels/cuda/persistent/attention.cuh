// Programs that run on the host have no attention.
#pragma once

#include <cstdlib>

#include "kernels/cuda/gemv/k_tile_dot.cuh"
#include "kernels/cuda/persistent/exchange.cuh"

namespace walsh::cuda {

__shared__ ProgramRow program_row;

struct PhaseBits {};

inline PhaseBits bits_of(const ProgramPhase&, uint32_t) {
  return {};
}

template <int Dim>
class AttendPhase {
 public:
  AttendPhase(const AttentionPhase&, std::byte*, const PhaseBits&, int, int) {}
  void run() { std::abort(); }
};

}  // namespace walsh::cuda
