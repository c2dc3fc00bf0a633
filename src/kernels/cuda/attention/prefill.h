// Arguments of the prefill kernels, which have one translation unit per head size.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/cache_view.h"

namespace walsh::cuda::detail {

struct PrefillArgs {
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
  const float* sinks = nullptr;  // [heads], AttentionRows
};

PrefillArgs prefill_args(const AttentionCall& call);

// Uses mma, which every device has.
void launch_prefill_mma(const PrefillArgs& args, Stream stream);
// Uses wgmma; returns false if the device or the build lacks it or the call is not supported.
bool launch_prefill_wgmma(const PrefillArgs& args, Stream stream);
void launch_prefill_64(const PrefillArgs& args, Stream stream);
void launch_prefill_96(const PrefillArgs& args, Stream stream);
void launch_prefill_128(const PrefillArgs& args, Stream stream);
void launch_prefill_256(const PrefillArgs& args, Stream stream);

}  // namespace walsh::cuda::detail
