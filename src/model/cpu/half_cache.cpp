#include "model/cpu/half_cache.h"

#include <algorithm>

#include "base/checked.h"
#include "cache/half_rows.h"

namespace walsh {

HalfCache::HalfCache(const Model& model, const KvPages& pages, uint64_t max_bytes)
    : model_(model), ops_(ops()), pages_(pages) {
  const char* where = "KV cache";
  uint64_t size = 0;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    layers_.push_back(static_cast<int64_t>(size));
    size = checked_add(size,
                       checked_mul(static_cast<uint64_t>(pages.shape().pages),
                                   static_cast<uint64_t>(page_size(layer)), where),
                       where);
  }
  check_cache_bytes(model, pages.shape(), checked_mul(size, 2 * sizeof(uint16_t), where),
                    max_bytes);
  keys_ = AlignedArray<uint16_t>(size);
  values_ = AlignedArray<uint16_t>(size);
}

uint64_t HalfCache::bytes() const {
  return (keys_.size() + values_.size()) * sizeof(uint16_t);
}

const AttentionDesc& HalfCache::attention_of(int64_t layer) const {
  return model_.config.layers[static_cast<size_t>(layer)].attention;
}

int64_t HalfCache::page_size(int64_t layer) const {
  return attention_of(layer).cached_width() * pages_.shape().page_positions;
}

KvView HalfCache::view(int64_t layer, int64_t sequence) const {
  const AttentionDesc& a = attention_of(layer);
  const int64_t first = layers_[static_cast<size_t>(layer)];
  return {keys_.data() + first,          values_.data() + first,
          pages_.shape().page_positions, static_cast<int>(a.kv_heads),
          static_cast<int>(a.head_dim),  pages_.pages(sequence).data()};
}

void HalfCache::copy_page(const PageCopy& copy) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t size = page_size(static_cast<int64_t>(i));
    for (AlignedArray<uint16_t>* array : {&keys_, &values_}) {
      uint16_t* layer = array->data() + layers_[i];
      std::copy_n(layer + copy.from * size, size, layer + copy.to * size);
    }
  }
}

void HalfCache::store_row(const KvView& view, int64_t position, const float* keys,
                          const float* values) {
  const int64_t first = view.keys - keys_.data();
  for (int64_t h = 0; h < view.kv_heads; ++h) {
    const int64_t to = first + view.offset(h, position), from = h * view.head_dim;
    store_half_row(ops_, keys + from, view.head_dim, keys_.data() + to);
    store_half_row(ops_, values + from, view.head_dim, values_.data() + to);
  }
}

void HalfCache::store(int64_t layer, const float* keys, const float* values, int64_t stride) {
  int64_t row = 0;
  for (const Run& run : runs_) {
    const int64_t first = row;
    const KvView to = view(layer, run.sequence);
    const auto store_rows = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        store_row(to, run.position + i, keys + (first + i) * stride, values + (first + i) * stride);
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
  const AttentionDesc& a = attention_of(layer);
  const Run& run = runs_[queries.run];
  ops_.attention({view(layer, run.sequence), static_cast<int>(queries.head),
                  static_cast<int>(a.heads / a.kv_heads), queries.m, run.position + queries.row,
                  queries.options, queries.q, queries.ldq, queries.out, queries.ldo,
                  queries.log_sums, scratch});
}

}  // namespace walsh
