// What the prompt kernels are told, one translation unit per head size.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/cache_view.h"

namespace walsh::cuda::detail {

struct PromptArgs {
  CacheView cache;
  const int32_t* positions = nullptr;
  const int32_t* sequences = nullptr;
  const float* q = nullptr;
  int64_t ldq = 0;
  float* out = nullptr;
  int64_t ldo = 0;
  int m = 0;
  int heads = 0, group = 0;
  int window = 0;
  float scale = 1;  // of logits in base 2
  LogitCap cap;
};

PromptArgs prompt_args(const AttentionCall& call);

// By mma, on every device.
void launch_prompt_tiles(const PromptArgs& args, Stream stream);
// By wgmma; false where the device or the build has none, or the call is not one it serves.
bool launch_prompt_groups(const PromptArgs& args, Stream stream);
void launch_prompt_64(const PromptArgs& args, Stream stream);
void launch_prompt_96(const PromptArgs& args, Stream stream);
void launch_prompt_128(const PromptArgs& args, Stream stream);
void launch_prompt_256(const PromptArgs& args, Stream stream);

}  // namespace walsh::cuda::detail
