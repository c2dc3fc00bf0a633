#include "cache/cuda/attend_prefill.h"

#include <fmt/format.h>

#include "walsh/error.h"

namespace walsh::cuda {
namespace {

bool reads(const CodedAttention& call) {
  const CodedView& cache = *call.cache;
  const int dim = cache.head_dim, block = cache.values.block;
  return is_coded_head(dim) && (block == 0 || block == 32 || block == dim) && call.heads > 0 &&
         cache.kv_heads > 0 && call.heads % cache.kv_heads == 0 && call.ldq % 2 == 0 &&
         call.ldo % 2 == 0 && call.scale > 0 && call.logit_cap >= 0;
}

}  // namespace

void attend_prefill(const CodedAttention& call, const FreshRows& fresh, const FreshRows& old,
                    int position, Stream stream) {
  if (call.m == 0) return;
  const CodedView& cache = *call.cache;
  if (!reads(call)) {
    throw Error(ErrorCode::internal, "GPU cache",
                fmt::format("{} heads of {} over {}, rotated by {}, strides {} and {}, window {}, "
                            "scale {}, cap {}",
                            call.heads, cache.head_dim, cache.kv_heads, cache.values.block,
                            call.ldq, call.ldo, call.window, call.scale, call.logit_cap));
  }
  detail::CodedPrefillArgs args;
  args.prefill.cache.kv_heads = cache.kv_heads;
  args.prefill.cache.head_dim = cache.head_dim;
  args.prefill.sequences = call.rows.sequences;
  args.prefill.q = call.q;
  args.prefill.ldq = call.ldq;
  args.prefill.out = call.out;
  args.prefill.ldo = call.ldo;
  args.prefill.m = static_cast<int>(call.m);
  args.prefill.heads = call.heads;
  args.prefill.group = call.heads / cache.kv_heads;
  args.prefill.window = static_cast<int>(call.window);
  args.prefill.scale = call.scale * kLog2E;
  args.prefill.cap = detail::logit_cap(call);
  args.prefill.sinks = call.sinks;
  args.cache = cache;
  args.stored = old;
  args.exact = fresh;
  args.position = position;
  const auto launch = cache.head_dim == 64    ? detail::launch_coded_prefill_64
                      : cache.head_dim == 128 ? detail::launch_coded_prefill_128
                                              : detail::launch_coded_prefill_256;
  launch(args, stream);
}

}  // namespace walsh::cuda
