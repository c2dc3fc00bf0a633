// Declares the arguments of GEMV kernels for products of experts.
#pragma once

#include "kernels/cuda/experts/expert_share.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/gemv/gemv_kernel.h"

namespace walsh::cuda {

// The sets are those of expert 0, with y of slot 0; m and vectors are the most of an item. Blocks
// find their tiles themselves (expert_share.h), not by `tiles_per_block`.
//
// A launch whose items were made two kernels before reads them, and requests weights, before the
// preceding kernel has ended. Other launches let the next kernel start only after their own wait.
struct ExpertGemvArgs : GemvArgs {
  int64_t stride = 0;                 // bytes between experts
  const ExpertItem* items = nullptr;  // [places]
  int places = 0;
  ExpertTiles share;              // of an item
  const int32_t* rows = nullptr;  // input row of each slot; null: its own number
  bool chosen_before = false;     // the items were made two kernels before
  bool makes_inputs = false;      // from `in` and `form`, whose rows are slots, with the clamp
  GateClamp clamp;
  SumByBlocks sum;
};

using ExpertGemvKernel = void (*)(ExpertGemvArgs);
template <typename Decoder>
ExpertGemvKernel expert_gemv_kernel(const GemvKind& kind);  // defined in expert_gemv.cuh

}  // namespace walsh::cuda
