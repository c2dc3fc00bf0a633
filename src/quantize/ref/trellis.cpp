#include <cmath>

#include "quantize/trellis/trellis_kernels.h"

namespace walsh::detail {

void trellis_forward_ref(const TrellisTable& table, const float* x, int steps, float* best) {
  const int classes = table.classes(), states = table.states();
  for (int t = 0; t < steps; ++t, x += table.values, best += classes) {
    for (int p = 0; p < classes; ++p) {
      float least = 0;
      for (int state = p; state < states; state += classes) {
        float cost = best[state >> table.step_bits];
        for (int v = 0; v < table.values; ++v) {
          const float d = x[v] - table.searched.data()[v * states + state];
          cost = std::fma(d, d, cost);
        }
        if (state == p || cost < least) least = cost;
      }
      best[classes + p] = least;
    }
  }
}

void trellis_forward_tiles_ref(const TrellisTable& table, const float* const* x, int steps,
                               float* const* best) {
  for (int i = 0; i < TrellisTable::kTilesAtOnce; ++i)
    trellis_forward_ref(table, x[i], steps, best[i]);
}

}  // namespace walsh::detail
