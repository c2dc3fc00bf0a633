// Replaces attention, which programs on the host do not have.
#pragma once

#include <cstdlib>

#include "kernels/cuda/persistent/attention.cuh"

namespace walsh::cuda {

template <int Dim, bool Mixers>
void attend_phase(const AttentionPhase&, std::byte*, const PhaseBits&) {
  std::abort();
}
template <int Dim, int Rows>
void attend_rows(const AttentionPhase&, std::byte*, const PhaseBits&) {
  std::abort();
}
template <int Dim>
void attend_codes(const AttentionPhase&, std::byte*, const PhaseBits&) {
  std::abort();
}

}  // namespace walsh::cuda
