// What the kernels of experts' products with few vectors are told.
#pragma once

#include "kernels/cuda/experts/expert_slots.h"
#include "kernels/cuda/gemv/gemv_kernel.h"

namespace walsh::cuda {

// Sets are those of expert 0, y of slot 0; m and vectors are found by the block.
struct ExpertGemvArgs : GemvArgs {
  int64_t stride = 0;                 // from expert to expert, in bytes
  const ExpertItem* items = nullptr;  // [gridDim.y]
  const int32_t* rows = nullptr;      // of slots, or null
  int first_slot = 0;                 // of the block's item
};

using ExpertGemvKernel = void (*)(ExpertGemvArgs);
template <typename Decoder>
ExpertGemvKernel expert_gemv_kernel(const GemvKind& kind);  // one file per decoder

}  // namespace walsh::cuda
