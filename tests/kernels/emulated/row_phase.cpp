#include "kernels/emulated/device.h"
//
#define __CUDA_ARCH__ 900
//
#include "kernels/emulated/row_phase.h"
//
#include "kernels/cuda/launch.h"
#include "kernels/cuda/persistent/attention.cuh"

namespace walsh::cuda {
namespace {

template <int Rows>
void phase_kernel(RowPhaseCall call) {
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    program_row_count = call.rows;
    for (int row = 0; row < Rows; ++row) {
      const int from = min(row, call.rows - 1);
      program_rows[row].position = call.places.positions[from];
      program_rows[row].pages =
          call.table.pages + call.places.sequences[from] * call.table.per_sequence;
      for (int i = 0; i < min(int64_t{kProgramPages}, call.table.per_sequence); ++i)
        program_rows[row].first_pages[i] = program_rows[row].pages[i];
    }
  }
  __syncthreads();
  const PhaseBits bits{{true, call.bit}, {true, call.bit}, {true, call.bit}, call.bit};
  AttendPhase<64, false, Rows>(call.phase, program_shared, bits, thread / 32, thread % 32).run();
}

}  // namespace

void run_rows(const RowPhaseCall& call) {
  const auto kernel = call.room == 2 ? phase_kernel<2> : phase_kernel<4>;
  const LaunchShape shape{dim3(static_cast<unsigned>(call.blocks)), dim3(kProgramWarps * 32),
                          kAttentionPhaseBytes};
  launch("phase", kernel, shape, nullptr, call);
}

}  // namespace walsh::cuda
