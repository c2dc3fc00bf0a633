// Arguments of GEMV kernels for products of experts.
#pragma once

#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/gemv/gemv_kernel.h"

namespace walsh::cuda {

// The sets are those of expert 0, with y of slot 0; the block computes m and vectors.
//
// A launch whose items were made two kernels before reads them, and requests weights, before the
// preceding kernel has ended. Other launches let the next kernel start only after their own wait.
struct ExpertGemvArgs : GemvArgs {
  int64_t stride = 0;                 // bytes between experts
  const ExpertItem* items = nullptr;  // [gridDim.y]
  const int32_t* rows = nullptr;      // input row of each slot; null: its own number
  int first_slot = 0;                 // first slot of the block's item
  bool chosen_before = false;         // the items were made two kernels before
  bool makes_inputs = false;          // from `in` and `form`, whose rows are slots, with the clamp
  GateClamp clamp;
  SumByBlocks sum;
};

using ExpertGemvKernel = void (*)(ExpertGemvArgs);
template <typename Decoder>
ExpertGemvKernel expert_gemv_kernel(const GemvKind& kind);  // defined in expert_gemv.cuh

}  // namespace walsh::cuda
