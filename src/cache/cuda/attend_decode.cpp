#include "cache/cuda/attend_decode.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

// fp16 tiles are aligned to the period of their permutation.
constexpr int64_t kAlignment = 2 * 256;
// Returns how much shared memory a warp may take so that row_blocks blocks fit on a multiprocessor.
constexpr int room(int head_dim) {
  return head_dim * (head_dim == 64 ? 168 : 104);
}

void set_step(detail::CodedDecodeArgs& args, int tiles) {
  const CodedView& cache = args.cache;
  const bool halves = cache.keys.bits == 0 || cache.values.bits == 0;
  const int64_t alignment = halves ? kAlignment : 16;
  args.most_tiles = tiles;
  args.values_at = static_cast<int>(round_up(cache.keys.tile_bytes * tiles, alignment));
  args.stage_bytes =
      static_cast<int>(round_up(args.values_at + cache.values.tile_bytes * tiles, alignment));
  // The warp's ring holds a tile of keys and one of values.
  const int half_tiles = 2 * kCacheTile * cache.head_dim * 2;
  args.ring_bytes = static_cast<int>(
      round_up(std::max(detail::kRowStages * args.stage_bytes, half_tiles), kAlignment));
}

void fit_step(detail::CodedDecodeArgs& args) {
  int tiles = kPageTiles;
  do {
    set_step(args, tiles);
  } while (args.ring_bytes > room(args.cache.head_dim) && (tiles /= 2) > 0);
}

}  // namespace

void attend_decode(const CodedAttention& call, int64_t longest, const AttentionScratch& scratch,
                   Stream stream) {
  if (call.m == 0) return;
  const CodedView& cache = *call.cache;
  const int dim = cache.head_dim;
  if (!is_coded_head(dim))
    throw Error(ErrorCode::internal, "GPU cache", fmt::format("heads of {}", dim));
  detail::CodedDecodeArgs args{
      detail::decode_args(call, cache.kv_heads, dim, scratch), cache, 0, 0, 0, 0};
  fit_step(args);
  const int splits = detail::attention_splits(call.m, call.heads, cache.kv_heads,
                                              detail::row_blocks(dim), attention_reach(longest));
  const auto launch = dim == 64    ? detail::launch_rows<64>
                      : dim == 128 ? detail::launch_rows<128>
                                   : detail::launch_rows<256>;
  launch(args, splits, stream);
}

}  // namespace walsh::cuda
