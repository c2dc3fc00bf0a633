// Declares the arguments of GEMV kernels for products of experts.
#pragma once

#include "kernels/cuda/experts/expert_share.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/gemv/gemv_kernel.h"

namespace walsh::cuda {

// Holds the arguments. The sets are those of expert 0, with y of slot 0; m and vectors are the most
// that an item has. Blocks find their tiles themselves (expert_share.h), not by `tiles_per_block`.
//
// A launch whose items were made two kernels before reads them, and requests weights, before the
// preceding kernel has ended. Other launches let the next kernel start only after their own wait.
struct ExpertGemvArgs : GemvArgs {
  int64_t stride = 0;                 // Experts are this many bytes apart.
  const ExpertItem* items = nullptr;  // Its shape is [places].
  int places = 0;
  ExpertTiles share;  // It divides an item.
  // It has the input row of each slot; null: that of its own number.
  const int32_t* rows = nullptr;
  bool chosen_before = false;  // If true, the items were made two kernels before.
  // If true, inputs are made from `in` and `form`, whose rows are slots, with the clamp.
  bool makes_inputs = false;
  GateClamp clamp;
  SumByBlocks sum;
};

using ExpertGemvKernel = void (*)(ExpertGemvArgs);
template <typename Decoder>
ExpertGemvKernel expert_gemv_kernel(const GemvKind& kind);  // expert_gemv.cuh defines it.

}  // namespace walsh::cuda
