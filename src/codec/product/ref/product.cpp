#include <cstdlib>

#include "codec/product/product_kernels.h"

namespace walsh::detail {

void product_search_ref(const ProductTable& table, const ProductTargets& targets, int vectors,
                        uint8_t* pointers) {
  for (int v = 0; v < vectors; ++v) {
    int32_t least = 0;
    for (int entry = 0; entry < kProductEntries; ++entry) {
      int32_t cost = 0;
      for (int i = 0; i < kProductValues; ++i) {
        const int x = targets.pairs[i / 2][v][i % 2];
        const int left = std::abs(x - table.entries[entry][i]) - table.residual;
        cost += left * left;
      }
      if (entry != 0 && cost >= least) continue;
      least = cost;
      pointers[v] = static_cast<uint8_t>(entry);
    }
  }
}

}  // namespace walsh::detail
