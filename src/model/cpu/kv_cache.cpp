#include "model/cpu/kv_cache.h"

#include <fmt/format.h>

#include "model/cpu/coded_cache.h"
#include "model/cpu/half_cache.h"

namespace walsh {

std::unique_ptr<KvCache> make_kv_cache(const Model& model, const KvPages& pages, int64_t max_rows,
                                       uint64_t max_bytes) {
  // With a window over everything nothing would ever be coded.
  if (!model.cache.coded() || model.cache.window >= pages.shape().capacity)
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
