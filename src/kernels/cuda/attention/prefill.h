// Arguments of the prefill kernels over fp16 pages, which have one translation unit per head size.
#pragma once

#include "kernels/cuda/attention/args.h"

namespace walsh::cuda::detail {

struct PagePrefillArgs : RowArgs {
  CacheView cache;
};

PagePrefillArgs prefill_args(const AttentionCall& call);

// Uses mma, which every device has.
void launch_prefill_mma(const PagePrefillArgs& args, Stream stream);
// Uses wgmma; returns false if the device or the build lacks it or the call is not supported.
bool launch_prefill_wgmma(const PagePrefillArgs& args, Stream stream);
void launch_prefill_64(const PagePrefillArgs& args, Stream stream);
void launch_prefill_96(const PagePrefillArgs& args, Stream stream);
void launch_prefill_128(const PagePrefillArgs& args, Stream stream);
// Values have at most 128 columns: heads of DeepSeek's latent attention.
void launch_prefill_192(const PagePrefillArgs& args, Stream stream);
void launch_prefill_256(const PagePrefillArgs& args, Stream stream);
void launch_prefill_512(const PagePrefillArgs& args, Stream stream);

}  // namespace walsh::cuda::detail
