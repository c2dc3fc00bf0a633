// Prepares attention on the host: memory, argument checks and launch shapes.
#include "kernels/cuda/attention/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/checked.h"
#include "kernels/cuda/attention/args.h"
#include "kernels/cuda/launch.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int64_t kMinReach = 256;
// A block has at least this many positions. It has the second number if more blocks exist than fit
// on the device.
constexpr int64_t kSplitTokens = 128, kCrowdedSplitTokens = 512;

uint64_t pool_bytes(int kv_heads, int head_dim, int64_t pages) {
  if (head_dim <= 0 || head_dim > kMaxHeadDim || head_dim % 8 != 0 || kv_heads <= 0) {
    throw Error(ErrorCode::internal, "KV cache",
                fmt::format("{} heads of {} values, expected multiples of 8 up to {}", kv_heads,
                            head_dim, kMaxHeadDim));
  }
  uint64_t bytes = static_cast<uint64_t>(pages);
  for (const int factor : {kv_heads, kPageTokens, head_dim, 2})
    bytes = checked_mul(bytes, static_cast<uint64_t>(factor), "KV cache");
  return bytes;
}

// Returns how many parts a row has at most, for any kernel. Kernels with fewer blocks per
// multiprocessor may have more parts.
int most_splits(int64_t m, int heads, int kv_heads) {
  int most = 0;
  for (int blocks = kLeastBlocks; blocks <= kMostBlocks; ++blocks)
    most = std::max(most, detail::attention_splits(m, heads, kv_heads, blocks, int64_t{1} << 40));
  return most;
}

// Returns how many floats of scratch the parts of all rows need. A part of a head has its values,
// its largest logit and its sum. The result is also valid for models without heads.
uint64_t partial_floats(int64_t max_m, int heads, int kv_heads, int head_dim) {
  if (kv_heads == 0) return 0;
  uint64_t most = 0;
  for (int64_t m = 1; m <= max_m; ++m) {
    const int splits = most_splits(m, heads, kv_heads);
    const auto rows = static_cast<uint64_t>(m * heads * splits);
    most = std::max(most, rows * static_cast<uint64_t>(head_dim + 2));
    if (splits == 1) break;  // From here on one block handles a whole row.
  }
  return most;
}

// Returns how many bytes the counters of arrived parts take.
uint64_t arrived_bytes(int64_t max_m, int heads, int kv_heads) {
  if (kv_heads == 0) return 0;
  return static_cast<uint64_t>(max_m * kv_heads * detail::head_tiles(heads, kv_heads)) *
         sizeof(int32_t);
}

}  // namespace

KvPool::KvPool(int heads, int dim, int dim_of_values, int64_t count)
    : kv_heads(heads),
      head_dim(dim),
      value_dim(dim_of_values),
      pages(count),
      keys(pool_bytes(heads, dim, count)),
      values(pool_bytes(heads, dim_of_values, count)) {}

void KvPool::copy_page(int64_t from, int64_t to, Stream stream) const {
  for (const Buffer* side : {&keys, &values}) {
    const uint64_t size = pool_bytes(kv_heads, side == &keys ? head_dim : value_dim, 1);
    auto* data = side->as<unsigned char>();
    copy_on_device(data + static_cast<uint64_t>(to) * size,
                   data + static_cast<uint64_t>(from) * size, size, stream);
  }
}

uint64_t KvPool::bytes(int kv_heads, int head_dim, int64_t pages) {
  return checked_mul(pool_bytes(kv_heads, head_dim, pages), 2, "KV cache");
}

AttentionScratch::AttentionScratch(int64_t max_m, int heads, int kv_heads, int head_dim)
    : partials_(partial_floats(max_m, heads, kv_heads, head_dim) * sizeof(float)),
      arrived_(arrived_bytes(max_m, heads, kv_heads), true) {}

uint64_t AttentionScratch::bytes(int64_t max_m, int heads, int kv_heads, int head_dim) {
  return partial_floats(max_m, heads, kv_heads, head_dim) * sizeof(float) +
         arrived_bytes(max_m, heads, kv_heads);
}

int64_t attention_reach(int64_t longest) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(longest, kMinReach))));
}

namespace detail {

AttentionRule attention_rule(const AttentionOptions& options, const float* sinks) {
  if (!(options.scale > 0) || !(options.logit_cap >= 0) || options.window < 0 ||
      options.chunk < 0) {
    throw Error(ErrorCode::internal, "GPU attention",
                fmt::format("window {}, chunk {}, scale {}, cap {}", options.window, options.chunk,
                            options.scale, options.logit_cap));
  }
  AttentionRule rule;
  rule.window = static_cast<int>(options.window);
  rule.chunk = static_cast<int>(options.chunk);
  rule.scale = options.scale * kLog2E;
  rule.sinks = sinks;
  if (options.logit_cap != 0) {
    rule.cap = {2 * kLog2E * options.scale / options.logit_cap, options.logit_cap / options.scale};
  }
  return rule;
}

RowArgs row_args(const AttentionRows& call, int kv_heads, int head_dim) {
  if (call.heads <= 0 || kv_heads <= 0 || call.heads % kv_heads != 0 || call.ldq % 2 != 0 ||
      call.ldo % 2 != 0) {
    throw Error(ErrorCode::internal, "GPU attention",
                fmt::format("{} heads of {} over {}, strides {} and {}", call.heads, head_dim,
                            kv_heads, call.ldq, call.ldo));
  }
  RowArgs args;
  args.rows = call.rows;
  args.q = call.q;
  args.ldq = call.ldq;
  args.out = call.out;
  args.ldo = call.ldo;
  args.m = static_cast<int>(call.m);
  args.heads = call.heads;
  args.head_dim = args.value_dim = head_dim;
  args.group = call.heads / kv_heads;
  args.rule = attention_rule(call.options, call.sinks);
  return args;
}

DecodeArgs decode_args(const AttentionRows& call, int kv_heads, int head_dim,
                       const AttentionScratch& scratch) {
  return {row_args(call, kv_heads, head_dim), head_tiles(call.heads, kv_heads), scratch.partials(),
          scratch.arrived()};
}

CacheView cache_view(const AttentionCall& call) {
  const KvPool& pool = *call.cache;
  CacheView view;
  view.keys = pool.keys.as<const uint16_t>();
  view.values = pool.values.as<const uint16_t>();
  view.kv_heads = pool.kv_heads;
  view.head_dim = pool.head_dim;
  view.pages = call.table.pages;
  view.per_sequence = call.table.per_sequence;
  return view;
}

int head_tiles(int heads, int kv_heads) {
  return (heads / kv_heads + kTileHeads - 1) / kTileHeads;
}

// If the blocks without splitting fill less than half a wave, parts are chosen to fill one wave.
// Otherwise there are many short blocks, so that the last wave is a small part of the total.
int attention_splits(int64_t m, int heads, int kv_heads, int per_processor, int64_t reach) {
  const int64_t wave = int64_t{per_processor} * current_device().multiprocessors;
  const int64_t blocks = m * kv_heads * head_tiles(heads, kv_heads);
  const bool crowded = 2 * blocks > wave;
  const int64_t splits = (crowded ? 3 * wave : wave) / blocks;
  const int64_t most = reach / (crowded ? kCrowdedSplitTokens : kSplitTokens);
  return static_cast<int>(std::clamp<int64_t>(std::min(splits, most), 1, kMaxSplits));
}

}  // namespace detail
}  // namespace walsh::cuda
