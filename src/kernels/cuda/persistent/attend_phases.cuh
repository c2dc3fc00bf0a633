// Makes functions of the phases of attention. They are not inlined, because beside the registers of
// an attention tile those of the weights would be spilled everywhere.
#pragma once

#include "kernels/cuda/persistent/attention.cuh"
#include "kernels/cuda/persistent/coded_attention.cuh"

namespace walsh::cuda {

template <int Dim, bool Mixers>
__device__ __noinline__ void attend_phase(const AttentionPhase& args, std::byte* memory,
                                          PhaseBits bits) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  AttendPhase<Dim, Mixers>(args, memory, bits, warp, lane).run();
}

// Attends for several rows.
template <int Dim, int Rows>
__device__ __noinline__ void attend_rows(const AttentionPhase& args, std::byte* memory,
                                         PhaseBits bits) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  AttendPhase<Dim, false, Rows>(args, memory, bits, warp, lane).run();
}

template <int Dim>
__device__ __noinline__ void attend_codes(const AttentionPhase& args, std::byte* memory,
                                          PhaseBits bits) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  AttendCodedPhase<Dim>(args, memory, bits, warp, lane).run();
}

}  // namespace walsh::cuda
