// The host side of prefill attention.
#include "kernels/cuda/attention/prefill.h"

namespace walsh::cuda {
namespace detail {

PrefillArgs prefill_args(const AttentionCall& call) {
  PrefillArgs args;
  args.cache = cache_view(call);
  args.positions = call.rows.positions;
  args.sequences = call.rows.sequences;
  args.q = call.q;
  args.ldq = call.ldq;
  args.out = call.out;
  args.ldo = call.ldo;
  args.m = static_cast<int>(call.m);
  args.heads = call.heads;
  args.group = call.heads / call.cache->kv_heads;
  args.window = static_cast<int>(call.window);
  args.scale = call.scale * kLog2E;
  args.cap = logit_cap(call);
  args.sinks = call.sinks;
  return args;
}

void launch_prefill_mma(const PrefillArgs& args, Stream stream) {
  const int dim = args.cache.head_dim;
  const auto launch = dim <= 64    ? launch_prefill_64
                      : dim <= 96  ? launch_prefill_96
                      : dim <= 128 ? launch_prefill_128
                                   : launch_prefill_256;
  launch(args, stream);
}

}  // namespace detail

void attend_prefill(const AttentionCall& call, Stream stream) {
  if (call.m == 0) return;
  const detail::PrefillArgs args = detail::prefill_args(call);
  if (!detail::launch_prefill_wgmma(args, stream)) detail::launch_prefill_mma(args, stream);
}

}  // namespace walsh::cuda
