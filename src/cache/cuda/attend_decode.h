// Declares the decode kernels over a coded cache, and their arguments.
#pragma once

#include "cache/cuda/coded_cache.h"
#include "kernels/cuda/attention/args.h"

namespace walsh::cuda::detail {

inline constexpr int kRowStages = 3;  // pipeline steps of a warp in shared memory
// Returns the blocks per multiprocessor; they have as many warps as their registers allow.
constexpr int row_blocks(int head_dim) {
  return head_dim == 64 ? 5 : 4;
}

struct CodedDecodeArgs : DecodeArgs {
  CodedView cache;
  int most_tiles = 0;  // most stored tiles per step: 1, 2 or 4
  // These are bytes of shared memory per warp and per step; a step's values begin at values_at.
  int ring_bytes = 0, stage_bytes = 0, values_at = 0;
};

// Launches the kernel for heads of Dim values (cmake/cuda_kernels.cmake: 64, 128, 256).
template <int Dim>
void launch_rows(const CodedDecodeArgs& args, int splits, Stream stream);

}  // namespace walsh::cuda::detail
