#include "model/cpu/kv_cache.h"

#include "model/cpu/coded_cache.h"
#include "model/cpu/half_cache.h"

namespace walsh {

std::unique_ptr<KvCache> make_kv_cache(const Model& model, int64_t positions, int64_t max_rows,
                                       const SessionOptions& options) {
  // With a window over everything nothing would ever be coded.
  if (!model.cache.coded() || model.cache.window >= positions)
    return std::make_unique<HalfCache>(model, positions, options);
  return std::make_unique<CodedCache>(model, positions, max_rows, options);
}

}  // namespace walsh
