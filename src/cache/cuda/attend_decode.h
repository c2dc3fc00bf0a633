// Declares the decode kernels over a coded cache, and their arguments.
#pragma once

#include "cache/cuda/coded_cache.h"
#include "kernels/cuda/attention/args.h"

namespace walsh::cuda::detail {

// A warp has this many steps of its pipeline in shared memory.
inline constexpr int kRowStages = 3;
// Returns how many blocks run on a multiprocessor. A block has as many warps as registers allow.
constexpr int row_blocks(int head_dim) {
  return head_dim == 64 ? 5 : 4;
}

struct CodedDecodeArgs : DecodeArgs {
  CodedView cache;
  int most_tiles = 0;  // A step takes at most this many stored tiles: 1, 2 or 4.
  // A warp has ring_bytes and a step stage_bytes of shared memory; the values of a step begin at
  // byte values_at.
  int ring_bytes = 0, stage_bytes = 0, values_at = 0;
};

// Launches the kernel for heads of Dim values (cmake/cuda_kernels.cmake: 64, 128, 256).
template <int Dim>
void launch_rows(const CodedDecodeArgs& args, int splits, Stream stream);

}  // namespace walsh::cuda::detail
