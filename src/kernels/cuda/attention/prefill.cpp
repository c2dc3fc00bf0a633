// The host side of prefill attention.
#include "kernels/cuda/attention/prefill.h"

namespace walsh::cuda {
namespace detail {

PagePrefillArgs prefill_args(const AttentionCall& call) {
  return {row_args(call, call.cache->kv_heads, call.cache->head_dim), cache_view(call)};
}

void launch_prefill_mma(const PagePrefillArgs& args, Stream stream) {
  const int dim = args.head_dim;
  const auto launch = dim <= 64    ? launch_prefill_64
                      : dim <= 96  ? launch_prefill_96
                      : dim <= 128 ? launch_prefill_128
                      : dim <= 256 ? launch_prefill_256
                                   : launch_prefill_512;
  launch(args, stream);
}

}  // namespace detail

void attend_prefill(const AttentionCall& call, Stream stream) {
  if (call.m == 0) return;
  const detail::PagePrefillArgs args = detail::prefill_args(call);
  if (!detail::launch_prefill_wgmma(args, stream)) detail::launch_prefill_mma(args, stream);
}

}  // namespace walsh::cuda
