// Computes attention of CodedCache in two parts, over the fp16 positions that a query sees and over
// the stored ones, and merges the results.
#include <algorithm>
#include <limits>

#include "model/cpu/coded_cache.h"

namespace walsh {

void CodedCache::attend(int64_t layer, const QueryRows& queries, int thread,
                        float* attention_scratch) {
  const AttentionOptions& options = queries.options;
  Scratch& scratch = scratch_of(layer_at(layer), thread);
  const RunPlan& plan = plans_[queries.run];
  const int64_t position = plan.run.position + queries.row, stored = sequence_of(plan).stored;
  bool any_stored = false;
  for (int64_t i = 0; i < queries.m;) {
    const auto alike_of = [&](int64_t query) -> Alike {
      const int64_t end = stored_end(position + query, stored);
      // The kernel applies a window to fp16 rows itself. A chunk is applied here: the rows begin
      // with it.
      const int64_t chunk = first_seen<int64_t>(0, options.chunk, position + query);
      return {query, 0, end, std::max(end, chunk)};
    };
    Alike alike = alike_of(i);
    const int64_t end = alike.end;
    for (; i < queries.m; ++i, ++alike.count) {
      const Alike own = alike_of(i);
      if (own.end != end || own.from != alike.from) break;
      const int64_t begin = options.sees_all() ? kLeading : options.first_seen(position + i);
      any_stored = any_stored || begin < end;
      scratch.begin[static_cast<size_t>(i)] = std::min(begin, end);
      scratch.end[static_cast<size_t>(i)] = end;
    }
    attend_exact(layer, queries, alike, scratch, attention_scratch);
  }
  if (any_stored && layer_at(layer).latents) {
    add_stored_latents(layer_at(layer), queries, scratch);
  } else if (any_stored) {
    add_stored(layer, queries, scratch);
  }
  if (queries.log_sums == nullptr) return;
  const int64_t rows = queries.m * queries.heads;
  std::copy_n(scratch.exact_sums.data(), rows, queries.log_sums);
}

void CodedCache::attend_exact(int64_t layer, const QueryRows& queries, const Alike& alike,
                              Scratch& scratch, float* attention_scratch) {
  const LayerCache& from_layer = layer_at(layer);
  const int64_t head_dim = from_layer.head_dim, group = queries.heads;
  const RunPlan& plan = plans_[queries.run];
  const int64_t position = plan.run.position + queries.row + alike.first;
  const HalfRows rows = rows_of(plan, from_layer, queries.head);
  const int64_t at = (alike.from - first_of(plan)) * head_dim;
  KvView view = {rows.keys + at,
                 rows.values + at,
                 0,
                 1,
                 static_cast<int>(head_dim),
                 nullptr,
                 static_cast<int>(from_layer.rank)};
  int64_t leading = 0;
  if (alike.end > 0 && queries.options.sees_all()) {
    leading = kLeading;
    const HalfRows from = leading_rows(plan.run.sequence, from_layer, queries.head);
    const int64_t count = (position + alike.count - alike.end) * head_dim;
    const auto join = [&](const uint16_t* first, const uint16_t* rest, uint16_t* to) {
      std::copy_n(first, kLeading * head_dim, to);
      std::copy_n(rest, count, to + kLeading * head_dim);
      return to;
    };
    const bool latent = from_layer.rank > 0;
    view.keys = join(from.keys, view.keys, scratch.keys.data());
    view.values = latent ? view.keys : join(from.values, view.values, scratch.values.data());
  }
  AttentionOptions options = queries.options;
  options.chunk = 0;  // The rows begin with the chunk already.
  ops_.attention({view, 0, static_cast<int>(group), alike.count, position - alike.from + leading,
                  options, queries.q + alike.first * queries.ldq, queries.ldq,
                  queries.out + alike.first * queries.ldo, queries.ldo,
                  scratch.exact_sums.data() + alike.first * group, attention_scratch});
}

void CodedCache::add_stored(int64_t layer, const QueryRows& queries, Scratch& scratch) {
  const LayerCache& stored_layer = layer_at(layer);
  const int64_t head_dim = stored_layer.head_dim, group = queries.heads;
  const int64_t sequence = plans_[queries.run].run.sequence;
  const Head& from = stored_layer.heads[static_cast<size_t>(queries.head)];
  const CacheHead head = {
      &from.keys,
      &from.values,
      stored_layer.key_rotator,
      stored_layer.value_rotator,
      key_type_.coded ? key_offset(sequence, stored_layer, queries.head) : nullptr,
      pages_.pages(sequence).data()};
  const CacheQueries stored = {queries.q,
                               queries.ldq,
                               queries.m,
                               static_cast<int>(group),
                               static_cast<int>(head_dim),
                               queries.options,
                               scratch.begin.data(),
                               scratch.end.data()};
  const int64_t width = group * head_dim;
  attend_stored(ops_, head, stored, scratch.out.data(), width, scratch.stored_sums.data(),
                scratch.stored);
  for (int64_t r = 0; r < queries.m * group; ++r) {
    const int64_t query = r / group, column = r % group * head_dim;
    float& sum = scratch.exact_sums[static_cast<size_t>(r)];
    sum = merge_attention(queries.out + query * queries.ldo + column, sum,
                          scratch.out.data() + query * width + column,
                          scratch.stored_sums[static_cast<size_t>(r)], static_cast<int>(head_dim));
  }
}

// Writes the rotated queries to scratch.queries [rows][heads][columns].
void CodedCache::rotate_queries(const LayerCache& layer, const QueryRows& queries,
                                Scratch& scratch) {
  const int64_t cols = layer.latents->cols(), width = layer.latents->width();
  for (int64_t r = 0; r < queries.m * queries.heads; ++r) {
    const float* q =
        queries.q + r / queries.heads * queries.ldq + r % queries.heads * layer.head_dim;
    float* x = scratch.queries.data() + r * width;
    std::copy_n(q, layer.rank, x);
    std::fill(x + layer.rank, x + cols, 0.0f);
    if (layer.key_rotator != nullptr) layer.key_rotator->apply(x);
    std::copy_n(q + layer.rank, layer.head_dim - layer.rank, x + cols);
  }
}

// Adds `count` decoded positions from `base` on. Queries that see the same positions count as heads
// of one query at the last of these.
void CodedCache::attend_block(const LayerCache& layer, const QueryRows& queries, int64_t base,
                              int64_t count, Scratch& scratch) {
  const int64_t cols = layer.latents->cols(), width = layer.latents->width();
  AttentionOptions options = queries.options;
  options.window = options.chunk = 0;
  for (int64_t i = 0, next = 0; i < queries.m; i = next) {
    const int64_t begin = scratch.begin[static_cast<size_t>(i)],
                  end = scratch.end[static_cast<size_t>(i)];
    while (next < queries.m && scratch.begin[static_cast<size_t>(next)] == begin &&
           scratch.end[static_cast<size_t>(next)] == end)
      ++next;
    const int64_t from = std::max<int64_t>(0, begin - base), to = std::min(count, end - base);
    if (from >= to) continue;
    const uint16_t* rows = scratch.block.data() + from * width;
    const KvView view = {
        rows, rows, 0, 1, static_cast<int>(width), nullptr, static_cast<int>(cols)};
    const int64_t first = i * queries.heads, all = (next - i) * queries.heads;
    ops_.attention({view, 0, static_cast<int>(all), 1, to - from - 1, options,
                    scratch.queries.data() + first * width, 0, scratch.block_out.data(), 0,
                    scratch.block_sums.data(), scratch.attention.data()});
    for (int64_t r = 0; r < all; ++r) {
      float& sum = scratch.stored_sums[static_cast<size_t>(first + r)];
      sum = merge_attention(scratch.out.data() + (first + r) * cols, sum,
                            scratch.block_out.data() + r * cols,
                            scratch.block_sums[static_cast<size_t>(r)], static_cast<int>(cols));
    }
  }
}

void CodedCache::add_stored_latents(const LayerCache& layer, const QueryRows& queries,
                                    Scratch& scratch) {
  const int64_t cols = layer.latents->cols(), rows = queries.m * queries.heads;
  const std::span<const int32_t> pages = pages_.pages(plans_[queries.run].run.sequence);
  rotate_queries(layer, queries, scratch);
  std::fill_n(scratch.out.data(), rows * cols, 0.0f);
  std::fill_n(scratch.stored_sums.data(), rows, -std::numeric_limits<float>::infinity());
  const int64_t first = scratch.begin[0], end = scratch.end[static_cast<size_t>(queries.m - 1)];
  for (int64_t block = first / kCacheBlock; block * kCacheBlock < end; ++block) {
    const int64_t count = std::min(kCacheBlock, end - block * kCacheBlock);
    layer.latents->load(ops_, pages[static_cast<size_t>(block)] * kCacheBlock, count,
                        scratch.block.data());
    attend_block(layer, queries, block * kCacheBlock, count, scratch);
  }
  for (int64_t r = 0; r < rows; ++r) {
    float* x = scratch.out.data() + r * cols;
    if (layer.key_rotator != nullptr) layer.key_rotator->invert(x);
    float* out = queries.out + r / queries.heads * queries.ldo + r % queries.heads * layer.rank;
    float& sum = scratch.exact_sums[static_cast<size_t>(r)];
    sum = merge_attention(out, sum, x, scratch.stored_sums[static_cast<size_t>(r)],
                          static_cast<int>(layer.rank));
  }
}

}  // namespace walsh
