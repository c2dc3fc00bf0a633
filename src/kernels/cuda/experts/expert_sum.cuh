// Adds up the outputs of a row's experts: in a separate launch, or by the blocks of the down
// product, where the block that finishes a part of a row last adds it up.
#pragma once

#include "kernels/cuda/experts/experts.h"

namespace walsh::cuda {

// One column of one row. The results may have been written by other blocks of the same launch.
__device__ __forceinline__ void sum_column(const ExpertSum& call, int64_t row, int64_t column) {
  const float* weights = call.weights == nullptr ? nullptr : call.weights + row * call.chosen;
  const int32_t* slot = call.slot + row * call.chosen;
  const int64_t at = row * call.width + column;
  float* out = call.out + at;
  float sum = 0;
  if (call.shared) {
    sum = *out;
    if (call.share != nullptr) sum *= 1.0f / (1.0f + expf(-call.share[row]));
  }
#pragma unroll 8
  for (int k = 0; k < call.chosen; ++k)
    sum += (weights == nullptr ? 1.0f : weights[k]) *
           __ldcg(call.results + slot[k] * call.width + column);
  if (call.stream == nullptr) {
    *out = sum;
  } else {
    call.stream[at] = call.stream[at] + call.scale * sum;
  }
}

// Called by all threads of block `block` of the `blocks` that share the columns of an item with
// slots [first, first + count), count <= kVectorSlots, after their last store; this block has
// written columns [begin, end) of them.
__device__ __forceinline__ void sum_behind_last(const SumByBlocks& call, int first, int count,
                                                int block, int blocks, int64_t begin, int64_t end) {
  __shared__ int last[kVectorSlots];  // a row that is complete, or -1
  const int thread = static_cast<int>(threadIdx.x);
  __threadfence();
  __syncthreads();
  if (thread < count) {
    const int row = call.row_of_slot[first + thread];
    int32_t* arrived = call.arrived + int64_t{row} * blocks + block;
    const bool complete = atomicAdd(arrived, 1) == call.sum.chosen - 1;
    if (complete) *arrived = 0;
    last[thread] = complete ? row : -1;
  }
  __syncthreads();
  __threadfence();
  const int64_t most = end < call.sum.width ? end : call.sum.width;
  for (int i = 0; i < count; ++i) {
    if (last[i] < 0) continue;
    for (int64_t column = begin + thread; column < most; column += blockDim.x)
      sum_column(call.sum, last[i], column);
  }
}

}  // namespace walsh::cuda
