#include "cache/cuda/attend_prefill.h"

#include <fmt/format.h>

#include "walsh/error.h"

namespace walsh::cuda {

void attend_prefill(const CodedAttention& call, const FreshRows& fresh, const FreshRows& old,
                    int position, Stream stream) {
  if (call.m == 0) return;
  const CodedView& cache = *call.cache;
  const int dim = cache.head_dim, block = cache.values.block;
  if (!is_coded_head(dim) || (block != 0 && block != 32 && block != dim)) {
    throw Error(ErrorCode::internal, "GPU cache",
                fmt::format("heads of {}, rotated by {}", dim, block));
  }
  const detail::CodedPrefillArgs args{detail::row_args(call, cache.kv_heads, dim), cache, old,
                                      fresh, position};
  const auto launch = dim == 64    ? detail::launch_coded_prefill<64>
                      : dim == 128 ? detail::launch_coded_prefill<128>
                                   : detail::launch_coded_prefill<256>;
  launch(args, stream);
}

}  // namespace walsh::cuda
