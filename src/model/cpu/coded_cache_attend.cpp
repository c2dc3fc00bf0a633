// Attention of CodedCache: over the fp16 positions of a query and over the stored ones, put
// together.
#include <algorithm>

#include "model/cpu/coded_cache.h"

namespace walsh {

const AttentionDesc& CodedCache::attention_of(int64_t layer) const {
  return model_.config.layers[static_cast<size_t>(layer)].attention;
}

void CodedCache::attend(int64_t layer, const QueryRows& queries, int thread,
                        float* attention_scratch) {
  const int64_t window = attention_of(layer).window;
  Scratch& scratch = scratch_[static_cast<size_t>(thread)];
  const Step& step = steps_[queries.run];
  const int64_t position = step.run.position + queries.row, stored = sequence_of(step).stored;
  bool any_stored = false;
  for (int64_t i = 0; i < queries.m;) {
    const int64_t end = stored_end(position + i, stored);
    const int64_t first = i;
    for (; i < queries.m && stored_end(position + i, stored) == end; ++i) {
      const int64_t begin = window > 0 ? std::max<int64_t>(0, position + i + 1 - window) : kSinks;
      any_stored = any_stored || begin < end;
      scratch.begin[static_cast<size_t>(i)] = std::min(begin, end);
      scratch.end[static_cast<size_t>(i)] = end;
    }
    attend_exact(layer, queries, {first, i - first, end}, scratch, attention_scratch);
  }
  if (any_stored) add_stored(layer, queries, scratch);
}

void CodedCache::attend_exact(int64_t layer, const QueryRows& queries, const Alike& alike,
                              Scratch& scratch, float* attention_scratch) {
  const AttentionDesc& a = attention_of(layer);
  const int64_t window = a.window;
  const Step& step = steps_[queries.run];
  const int64_t position = step.run.position + queries.row + alike.first;
  const HalfRows rows = rows_of(step, layer, queries.head);
  const int64_t at = (alike.end - first_of(step)) * head_dim_;
  KvView view = {rows.keys + at, rows.values + at, 0, 1, static_cast<int>(head_dim_)};
  int64_t sinks = 0;
  if (alike.end > 0 && window == 0) {
    sinks = kSinks;
    const HalfRows from = sinks_of(step.run.sequence, layer, queries.head);
    const int64_t count = (position + alike.count - alike.end) * head_dim_;
    const auto join = [&](const uint16_t* first, const uint16_t* rest, uint16_t* to) {
      std::copy_n(first, kSinks * head_dim_, to);
      std::copy_n(rest, count, to + kSinks * head_dim_);
      return to;
    };
    view.keys = join(from.keys, view.keys, scratch.keys.data());
    view.values = join(from.values, view.values, scratch.values.data());
  }
  ops_.attention(view, 0, static_cast<int>(group_), queries.q + alike.first * queries.ldq,
                 queries.ldq, alike.count, position - alike.end + sinks, window,
                 {a.scale, a.logit_cap}, queries.out + alike.first * queries.ldo, queries.ldo,
                 scratch.exact_sums.data() + alike.first * group_, attention_scratch);
}

void CodedCache::add_stored(int64_t layer, const QueryRows& queries, Scratch& scratch) {
  const AttentionDesc& a = attention_of(layer);
  const Head& from = head_of(steps_[queries.run], layer, queries.head);
  const CacheHead head = {&from.keys, &from.values, key_rotator_.get(), value_rotator_.get(),
                          key_type_.coded ? from.key_offset.data() : nullptr};
  const CacheQueries stored = {queries.q,
                               queries.ldq,
                               queries.m,
                               static_cast<int>(group_),
                               static_cast<int>(head_dim_),
                               {a.scale, a.logit_cap},
                               scratch.begin.data(),
                               scratch.end.data()};
  const int64_t width = group_ * head_dim_;
  attend_stored(ops_, head, stored, scratch.out.data(), width, scratch.stored_sums.data(),
                scratch.stored);
  for (int64_t r = 0; r < queries.m * group_; ++r) {
    const int64_t query = r / group_, column = r % group_ * head_dim_;
    merge_attention(queries.out + query * queries.ldo + column,
                    scratch.exact_sums[static_cast<size_t>(r)],
                    scratch.out.data() + query * width + column,
                    scratch.stored_sums[static_cast<size_t>(r)], static_cast<int>(head_dim_));
  }
}

}  // namespace walsh
