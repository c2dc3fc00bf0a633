#include "model/cpu/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/cpu/coded_cache.h"
#include "model/cpu/half_cache.h"

namespace walsh {

std::unique_ptr<KvCache> make_kv_cache(const Model& model, const KvPages& pages, int64_t max_rows,
                                       uint64_t max_bytes) {
  const std::vector<LayerDesc>& layers = model.config.layers;
  const bool attends = std::any_of(layers.begin(), layers.end(),
                                   [](const LayerDesc& l) { return l.attention.present(); });
  // If the window covers everything, or there are no keys, nothing would ever be coded.
  if (!model.cache.coded() || !attends || model.cache.window >= pages.shape().capacity)
    return std::make_unique<HalfCache>(model, pages, max_bytes);
  return std::make_unique<CodedCache>(model, pages, max_rows, max_bytes);
}

void check_cache_bytes(const Model& model, const KvShape& shape, uint64_t bytes,
                       uint64_t max_bytes) {
  if (bytes <= max_bytes) return;
  throw Error(
      ErrorCode::limit, "KV cache",
      fmt::format("{} sequences of {} positions, {} pages of {}, need {} MiB with keys as "
                  "{} and values as {}, the limit is {} MiB",
                  shape.sequences, shape.capacity, shape.pages, shape.page_positions, bytes >> 20,
                  model.cache.keys->name, model.cache.values->name, max_bytes >> 20));
}

}  // namespace walsh
