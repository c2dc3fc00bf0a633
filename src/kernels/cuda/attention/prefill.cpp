// Launches prefill attention.
#include "kernels/cuda/attention/prefill.h"

#include <algorithm>

namespace walsh::cuda {
namespace detail {

PagePrefillArgs prefill_args(const AttentionCall& call) {
  const KvPool& pool = *call.cache;
  PagePrefillArgs args{row_args(call, pool.kv_heads, pool.head_dim), cache_view(call)};
  args.value_dim = pool.value_dim;
  return args;
}

void launch_prefill_mma(const PagePrefillArgs& args, Stream stream) {
  const int dim = std::max(args.head_dim, args.value_dim);
  const bool of_latents = dim > 128 && dim <= 192 && args.value_dim <= 128;
  const auto launch = of_latents   ? launch_page_prefill<192>
                      : dim <= 64  ? launch_page_prefill<64>
                      : dim <= 96  ? launch_page_prefill<96>
                      : dim <= 128 ? launch_page_prefill<128>
                      : dim <= 256 ? launch_page_prefill<256>
                                   : launch_page_prefill<512>;
  launch(args, stream);
}

}  // namespace detail

void attend_prefill(const AttentionCall& call, Stream stream) {
  if (call.m == 0) return;
  const detail::PagePrefillArgs args = detail::prefill_args(call);
  if (!detail::launch_prefill_wgmma(args, stream)) detail::launch_prefill_mma(args, stream);
}

}  // namespace walsh::cuda
