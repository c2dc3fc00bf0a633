// Adds up the outputs of a row's experts. A separate launch does so, or the blocks of the down
// product, of which the one that finishes a part of a row last adds it up. Parts are units of
// tiles.
#pragma once

#include "kernels/cuda/experts/expert_share.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/weights/matrix.h"

namespace walsh::cuda {

struct SummedPart {
  int row, unit;
};

// Adds up one column of one row. The results may have been written by other blocks of the same
// launch.
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

// Counts a block's part of a row as complete. Pair `i` of the slots and units of its work names the
// part. Returns whether all experts of the row have that part.
__device__ __forceinline__ bool count_part(const SumByBlocks& call, const ExpertTiles& of,
                                           const ExpertWork* work, int i, SummedPart& part) {
  int units = work->part.end - work->part.begin;
  while (i >= units * work->item.count) {
    i -= units * work->item.count;
    ++work;
    units = work->part.end - work->part.begin;
  }
  const int slot = i / units;
  part.row = call.row_of_slot[work->item.first + slot];
  part.unit = work->part.begin + i - slot * units;
  int32_t* arrived = call.arrived + int64_t{part.row} * of.units() + part.unit;
  if (atomicAdd(arrived, 1) != call.sum.chosen - 1) return false;
  *arrived = 0;
  return true;
}

// Adds up what the block has completed last. All threads call it after their last store, with the
// block's work and with shared memory for as many parts as the block has threads.
__device__ __forceinline__ void sum_behind_last(const SumByBlocks& call, const ExpertTiles& of,
                                                const ExpertWork* work, int works,
                                                SummedPart* complete) {
  __shared__ int count;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int columns = of.grain * kTileRows;
  int pairs = 0;
  for (int w = 0; w < works; ++w)
    pairs += work[w].item.count * (work[w].part.end - work[w].part.begin);
  __threadfence();
  for (int base = 0; base < pairs; base += threads) {
    __syncthreads();
    if (thread == 0) count = 0;
    __syncthreads();
    SummedPart part;
    if (base + thread < pairs && count_part(call, of, work, base + thread, part))
      complete[atomicAdd(&count, 1)] = part;
    __syncthreads();
    __threadfence();
    for (int i = thread; i < count * columns; i += threads) {
      const SummedPart& own = complete[i / columns];
      const int64_t column = int64_t{own.unit} * columns + i % columns;
      if (column < call.sum.width) sum_column(call.sum, own.row, column);
    }
  }
}

}  // namespace walsh::cuda
