#include "model/cpu/kv_cache.h"

#include <fmt/format.h>

#include "base/checked.h"

namespace walsh {
namespace {

size_t checked_elements(const ModelConfig& c, int64_t capacity, uint64_t max_bytes) {
  const char* where = "KV cache";
  uint64_t elements = static_cast<uint64_t>(capacity);
  for (int64_t factor : {c.layers, c.kv_heads, c.head_dim})
    elements = checked_mul(elements, static_cast<uint64_t>(factor), where);
  const uint64_t bytes = checked_mul(elements, 2 * sizeof(uint16_t), where);
  if (bytes > max_bytes) {
    throw Error(ErrorCode::limit, where,
                fmt::format("{} positions need {} MiB, the limit is {} MiB", capacity, bytes >> 20,
                            max_bytes >> 20));
  }
  return elements;
}

}  // namespace

KvCache::KvCache(const ModelConfig& config, int64_t capacity, uint64_t max_bytes)
    : kv_heads_(config.kv_heads),
      head_dim_(config.head_dim),
      capacity_(capacity),
      keys_(checked_elements(config, capacity, max_bytes)),
      values_(keys_.size()) {}

KvView KvCache::layer(int64_t index) const {
  const size_t offset = static_cast<size_t>(index * kv_heads_ * capacity_ * head_dim_);
  return {keys_.data() + offset, values_.data() + offset, capacity_, static_cast<int>(kv_heads_),
          static_cast<int>(head_dim_)};
}

void KvCache::store(const Ops& ops, int64_t layer, int64_t head, int64_t position, const float* key,
                    const float* value) {
  const size_t offset =
      static_cast<size_t>(((layer * kv_heads_ + head) * capacity_ + position) * head_dim_);
  ops.to_f16(key, head_dim_, keys_.data() + offset);
  ops.to_f16(value, head_dim_, values_.data() + offset);
}

}  // namespace walsh
