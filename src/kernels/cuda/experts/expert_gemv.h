// What the kernels of experts' products with few vectors are told.
#pragma once

#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/gemv/gemv_kernel.h"

namespace walsh::cuda {

// Sets are those of expert 0, y of slot 0; m and vectors are found by the block.
//
// A launch whose items were chosen by a kernel in front of the one before it reads them, and asks
// for weights, before that one has ended: so one that cannot do that lets the next kernel start
// only when it has waited itself.
struct ExpertGemvArgs : GemvArgs {
  int64_t stride = 0;                 // from expert to expert, in bytes
  const ExpertItem* items = nullptr;  // [gridDim.y]
  const int32_t* rows = nullptr;      // of slots, or null
  int first_slot = 0;                 // of the block's item
  bool chosen_before = false;         // the items were
  bool makes_inputs = false;          // of in and form, whose rows are slots; with the clamp
  GateClamp clamp;
  SumByBlocks sum;
};

using ExpertGemvKernel = void (*)(ExpertGemvArgs);
template <typename Decoder>
ExpertGemvKernel expert_gemv_kernel(const GemvKind& kind);  // one file per decoder

}  // namespace walsh::cuda
