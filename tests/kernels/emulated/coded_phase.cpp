#include "kernels/emulated/device.h"
//
#define __CUDA_ARCH__ 900
//
#include "kernels/emulated/coded_phase.h"
//
#include "kernels/cuda/launch.h"
#include "kernels/cuda/persistent/coded_attention.cuh"

namespace walsh::cuda {
namespace {

template <int Dim>
void phase_kernel(CodedPhaseCall call) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int32_t* pages = call.table.pages + call.sequence * call.table.per_sequence;
  if (thread == 0) {
    program_row.position = call.position;
    program_row.kept = call.kept;
    program_row.pages = pages;
    program_sequence = call.sequence;
  }
  if (thread < min(int64_t{kProgramPages}, call.table.per_sequence))
    program_row.first_pages[thread] = pages[thread];
  __syncthreads();
  AttendCodedPhase<Dim>(call.phase, program_shared, PhaseBits{}, thread / 32, thread % 32).run();
}

}  // namespace

void run_phase(const CodedPhaseCall& call) {
  const auto kernel = call.phase.head_dim == 64 ? phase_kernel<64> : phase_kernel<128>;
  const LaunchShape shape{dim3(static_cast<unsigned>(call.blocks)), dim3(kProgramWarps * 32),
                          kCodedPhaseBytes};
  launch("phase", kernel, shape, nullptr, call);
}

}  // namespace walsh::cuda
