// A cache that keeps everything as fp16.
#pragma once

#include <vector>

#include "base/aligned.h"
#include "model/cpu/kv_cache.h"

namespace walsh {

class HalfCache : public KvCache {
 public:
  HalfCache(const Model& model, const KvPages& pages, uint64_t max_bytes);

  uint64_t bytes() const override;
  void start(std::span<const Run> runs) override { runs_ = runs; }
  void finish() override {}
  void abandon() override {}
  void copy_page(const PageCopy& copy) override;
  void fork(int64_t, int64_t) override {}
  void store(int64_t layer, const float* keys, const float* values, int64_t stride) override;
  void attend(int64_t layer, const QueryRows& queries, int thread, float* scratch) override;

 private:
  const AttentionDesc& attention_of(int64_t layer) const;
  KvView view(int64_t layer, int64_t sequence) const;
  void store_row(const KvView& view, int64_t position, const float* keys, const float* values);
  // Return how many numbers a page of a layer has.
  int64_t key_page(int64_t layer) const;
  int64_t value_page(int64_t layer) const;

  const Model& model_;
  const Ops& ops_;
  const KvPages& pages_;
  std::span<const Run> runs_;
  // These are the places where the layers begin in the arrays. Where values are the beginnings of
  // keys, only these are kept.
  std::vector<int64_t> layer_keys_, layer_values_;
  AlignedArray<uint16_t> keys_, values_;  // [layer][page][kv_heads][page positions][head_dim]
};

}  // namespace walsh
