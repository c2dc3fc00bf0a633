// Attention of CodedCache: over the fp16 positions of a query and over the stored ones, combined at
// the end.
#include <algorithm>

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
      // The call for exact rows applies a window; chunks begin where it does.
      const int64_t chunk = first_seen<int64_t>(0, options.chunk, position + query);
      return {query, 0, end, std::max(end, chunk)};
    };
    Alike alike = alike_of(i);
    const int64_t end = alike.end;
    for (; i < queries.m; ++i, ++alike.count) {
      const Alike own = alike_of(i);
      if (own.end != end || own.from != alike.from) break;
      const int64_t begin = options.sees_all() ? kSinks : options.first_seen(position + i);
      any_stored = any_stored || begin < end;
      scratch.begin[static_cast<size_t>(i)] = std::min(begin, end);
      scratch.end[static_cast<size_t>(i)] = end;
    }
    attend_exact(layer, queries, alike, scratch, attention_scratch);
  }
  if (any_stored) add_stored(layer, queries, scratch);
  if (queries.log_sums == nullptr) return;
  const int64_t rows = queries.m * layer_at(layer).group;
  std::copy_n(scratch.exact_sums.data(), rows, queries.log_sums);
}

void CodedCache::attend_exact(int64_t layer, const QueryRows& queries, const Alike& alike,
                              Scratch& scratch, float* attention_scratch) {
  const LayerCache& from_layer = layer_at(layer);
  const int64_t head_dim = from_layer.head_dim, group = from_layer.group;
  const RunPlan& plan = plans_[queries.run];
  const int64_t position = plan.run.position + queries.row + alike.first;
  const HalfRows rows = rows_of(plan, from_layer, queries.head);
  const int64_t at = (alike.from - first_of(plan)) * head_dim;
  KvView view = {rows.keys + at, rows.values + at, 0, 1, static_cast<int>(head_dim), nullptr};
  int64_t sinks = 0;
  if (alike.end > 0 && queries.options.sees_all()) {
    sinks = kSinks;
    const HalfRows from = sinks_of(plan.run.sequence, from_layer, queries.head);
    const int64_t count = (position + alike.count - alike.end) * head_dim;
    const auto join = [&](const uint16_t* first, const uint16_t* rest, uint16_t* to) {
      std::copy_n(first, kSinks * head_dim, to);
      std::copy_n(rest, count, to + kSinks * head_dim);
      return to;
    };
    view.keys = join(from.keys, view.keys, scratch.keys.data());
    view.values = join(from.values, view.values, scratch.values.data());
  }
  AttentionOptions options = queries.options;
  options.chunk = 0;  // the rows begin with the chunk
  ops_.attention({view, 0, static_cast<int>(group), alike.count, position - alike.from + sinks,
                  options, queries.q + alike.first * queries.ldq, queries.ldq,
                  queries.out + alike.first * queries.ldo, queries.ldo,
                  scratch.exact_sums.data() + alike.first * group, attention_scratch});
}

void CodedCache::add_stored(int64_t layer, const QueryRows& queries, Scratch& scratch) {
  const LayerCache& stored_layer = layer_at(layer);
  const int64_t head_dim = stored_layer.head_dim, group = stored_layer.group;
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

}  // namespace walsh
