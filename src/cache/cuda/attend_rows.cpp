#include "cache/cuda/attend_rows.h"

#include <fmt/format.h>

#include "base/checked.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

// fp16 tiles start where the permutation of their pieces does.
constexpr int kCodedAlignment = 16, kHalfAlignment = 2 * kMaxHeadDim;

// As many stored tiles as a step has room for.
void fit_step(detail::RowsArgs& args) {
  const CodedView& cache = args.cache;
  const int room = cache.head_dim * detail::kStageBytesPerColumn;
  const int alignment = cache.values.bits == 0 ? kHalfAlignment : kCodedAlignment;
  args.key_bytes = cache.keys.tile_bytes;
  args.value_bytes = cache.values.tile_bytes;
  for (int tiles = kPageTiles; tiles > 0; --tiles) {
    args.values_at = static_cast<int>(round_up(args.key_bytes * tiles, alignment));
    args.most_tiles = tiles;
    if (args.values_at + args.value_bytes * tiles <= room) return;
  }
  throw Error(ErrorCode::internal, "GPU cache",
              fmt::format("tiles of {} and {} bytes", args.key_bytes, args.value_bytes));
}

}  // namespace

void attend_rows(const CodedAttention& call, int64_t longest, const AttentionScratch& scratch,
                 Stream stream) {
  if (call.m == 0) return;
  const CodedView& cache = *call.cache;
  const int dim = cache.head_dim;
  if (call.heads <= 0 || call.heads % cache.kv_heads != 0 || call.ldq % 2 != 0 ||
      call.ldo % 2 != 0 || (dim != 64 && dim != 128 && dim != 256)) {
    throw Error(ErrorCode::internal, "GPU cache",
                fmt::format("{} heads of {} over {}, strides {} and {}", call.heads, dim,
                            cache.kv_heads, call.ldq, call.ldo));
  }
  detail::RowsArgs args;
  args.cache = cache;
  args.rows = call.rows;
  args.q = call.q;
  args.ldq = call.ldq;
  args.out = call.out;
  args.ldo = call.ldo;
  args.group = call.heads / cache.kv_heads;
  args.tiles = detail::head_tiles(call.heads, cache.kv_heads);
  args.window = static_cast<int>(call.window);
  fit_step(args);
  args.parts = {scratch.partials(), scratch.arrived(), call.heads, dim, call.scale * kLog2E};
  const int splits =
      detail::attention_splits(call.m, call.heads, cache.kv_heads, dim, attention_reach(longest));
  const auto launch = dim == 64    ? detail::launch_rows_64
                      : dim == 128 ? detail::launch_rows_128
                                   : detail::launch_rows_256;
  launch(args, call.m, splits, stream);
}

}  // namespace walsh::cuda
