#include <algorithm>

#include "codec/trellis/trellis_kernels.h"

namespace walsh::detail {

void trellis_forward_ref(const TrellisTable& table, const int16_t* const* x, int tiles, int steps,
                         int32_t* const* best) {
  const int classes = table.classes(), fan = 1 << table.step_bits;
  for (int i = 0; i < tiles; ++i) {
    const int16_t* target = x[i];
    int32_t* from = best[i];
    for (int t = 0; t < steps; ++t, target += 2, from += classes) {
      const int16_t* level = table.by_class.data();
      for (int p = 0; p < classes; ++p) {
        int32_t least = INT32_MAX;
        for (int first = 0; first < fan; ++first, level += 2) {
          const int32_t d = target[0] - level[0], e = target[1] - level[1];
          least = std::min(least, from[(first * classes + p) >> table.step_bits] + d * d + e * e);
        }
        from[classes + p] = least;
      }
    }
  }
}

}  // namespace walsh::detail
