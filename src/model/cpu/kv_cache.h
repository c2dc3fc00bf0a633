// The keys and values of one sequence, as fp16. Other storage types of the cache belong here.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned.h"
#include "kernels/ops.h"
#include "model/config.h"

namespace walsh {

class KvCache {
 public:
  // Room for `capacity` positions. Throws limit with the numbers if that is more memory than
  // `max_bytes`.
  KvCache(const ModelConfig& config, int64_t capacity, uint64_t max_bytes);

  int64_t capacity() const { return capacity_; }
  uint64_t bytes() const { return keys_.size() * sizeof(uint16_t) * 2; }
  KvView layer(int64_t index) const;

  // Stores one head's key and value of a position, [head_dim] each.
  void store(const Ops& ops, int64_t layer, int64_t head, int64_t position, const float* key,
             const float* value);

 private:
  int64_t kv_heads_, head_dim_, capacity_;
  AlignedArray<uint16_t> keys_, values_;  // [layers][kv_heads][capacity][head_dim]
};

}  // namespace walsh
