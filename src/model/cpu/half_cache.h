// A cache in which everything is fp16.
#pragma once

#include <vector>

#include "base/aligned.h"
#include "model/cpu/kv_cache.h"

namespace walsh {

class HalfCache : public KvCache {
 public:
  HalfCache(const Model& model, int64_t positions, const SessionOptions& options);

  uint64_t bytes() const override;
  void start(std::span<const Run> runs) override { runs_ = runs; }
  void finish() override {}
  void abandon() override {}
  void store(int64_t layer, const float* keys, const float* values, int64_t stride) override;
  void attend(int64_t layer, const QueryRows& queries, int thread, float* scratch) override;

 private:
  size_t offset(int64_t sequence, int64_t layer, int64_t head, int64_t position) const;
  void store_row(int64_t layer, int64_t sequence, int64_t position, const float* keys,
                 const float* values);

  const Model& model_;
  const Ops& ops_;
  int64_t capacity_, layers_, kv_heads_, head_dim_;
  std::span<const Run> runs_;
  AlignedArray<uint16_t> keys_, values_;  // [sequences][layers][kv_heads][capacity][head_dim]
};

}  // namespace walsh
