// Launches the prefill kernels over fp16 pages. cmake/cuda_kernels.cmake lists the sizes of heads
// that they are compiled for.
#pragma once

#include "kernels/cuda/attention/args.h"

namespace walsh::cuda::detail {

struct PagePrefillArgs : RowArgs {
  CacheView cache;
};

PagePrefillArgs prefill_args(const AttentionCall& call);

// Launches the kernel that uses mma, which every device has.
void launch_prefill_mma(const PagePrefillArgs& args, Stream stream);
// Launches the kernel that uses wgmma. Returns false if the device or the build lacks the
// instructions or the call is not supported.
bool launch_prefill_wgmma(const PagePrefillArgs& args, Stream stream);
// Launches the kernel for heads of up to Dim values. The kernel of 192, for heads of DeepSeek's
// latent attention, takes values of at most 128.
template <int Dim>
void launch_page_prefill(const PagePrefillArgs& args, Stream stream);

}  // namespace walsh::cuda::detail
