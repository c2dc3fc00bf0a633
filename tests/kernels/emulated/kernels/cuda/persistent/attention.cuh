// Replaces attention, which programs on the host do not have.
#pragma once

#include <cstdlib>

#include "kernels/cuda/gemv/k_tile_dot.cuh"
#include "kernels/cuda/persistent/exchange.cuh"

namespace walsh::cuda {

struct PhaseBits {};

inline PhaseBits bits_of(const ProgramPhase&, uint32_t) {
  return {};
}

template <int Dim, bool Mixers>
class AttendPhase {
 public:
  AttendPhase(const AttentionPhase&, std::byte*, const PhaseBits&, int, int) {}
  void run() { std::abort(); }
};

}  // namespace walsh::cuda
