#include "model/cpu/half_cache.h"

#include <fmt/format.h>

#include <cmath>

#include "base/checked.h"

namespace walsh {
namespace {

size_t checked_elements(const ModelConfig& c, int64_t capacity, const SessionOptions& options) {
  const char* where = "KV cache";
  uint64_t elements = static_cast<uint64_t>(capacity);
  const LayerWidths w = widest(c);
  for (int64_t factor :
       {options.sequences, static_cast<int64_t>(c.layers.size()), w.kv_heads, w.head_dim})
    elements = checked_mul(elements, static_cast<uint64_t>(factor), where);
  const uint64_t bytes = checked_mul(elements, 2 * sizeof(uint16_t), where);
  if (bytes > options.max_bytes) {
    throw Error(ErrorCode::limit, where,
                fmt::format("{} positions of {} sequences need {} MiB, the limit is {} MiB",
                            capacity, options.sequences, bytes >> 20, options.max_bytes >> 20));
  }
  return elements;
}

}  // namespace

HalfCache::HalfCache(const Model& model, int64_t positions, const SessionOptions& options)
    : model_(model),
      ops_(ops()),
      capacity_(positions),
      layers_(static_cast<int64_t>(model.config.layers.size())),
      kv_heads_(widest(model.config).kv_heads),
      head_dim_(widest(model.config).head_dim),
      keys_(checked_elements(model.config, positions, options)),
      values_(keys_.size()) {}

uint64_t HalfCache::bytes() const {
  return (keys_.size() + values_.size()) * sizeof(uint16_t);
}

size_t HalfCache::offset(int64_t sequence, int64_t layer, int64_t head, int64_t position) const {
  const int64_t row = ((sequence * layers_ + layer) * kv_heads_ + head) * capacity_ + position;
  return static_cast<size_t>(row * head_dim_);
}

void HalfCache::store_row(int64_t layer, int64_t sequence, int64_t position, const float* keys,
                          const float* values) {
  for (int64_t h = 0; h < kv_heads_; ++h) {
    const size_t to = offset(sequence, layer, h, position);
    ops_.to_f16(keys + h * head_dim_, head_dim_, keys_.data() + to);
    ops_.to_f16(values + h * head_dim_, head_dim_, values_.data() + to);
  }
}

void HalfCache::store(int64_t layer, const float* keys, const float* values, int64_t stride) {
  int64_t row = 0;
  for (const Run& run : runs_) {
    const int64_t first = row;
    const auto store_rows = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        store_row(layer, run.sequence, run.position + i, keys + (first + i) * stride,
                  values + (first + i) * stride);
    };
    if (run.rows == 1) {
      store_rows(0, 1);
    } else {
      model_.pool().for_ranges(run.rows, 1, store_rows);
    }
    row += run.rows;
  }
}

void HalfCache::attend(int64_t layer, const QueryRows& queries, int, float* scratch) {
  const AttentionDesc& a = model_.config.layers[static_cast<size_t>(layer)].attention;
  const Run& run = runs_[queries.run];
  const size_t at = offset(run.sequence, layer, queries.head, 0);
  const KvView view = {keys_.data() + at, values_.data() + at, capacity_, 1,
                       static_cast<int>(head_dim_)};
  ops_.attention(view, 0, static_cast<int>(a.heads / a.kv_heads), queries.q, queries.ldq, queries.m,
                 run.position + queries.row, a.window, {a.scale, a.logit_cap}, queries.out,
                 queries.ldo, nullptr, scratch);
}

}  // namespace walsh
