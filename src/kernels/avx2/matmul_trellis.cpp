// The int8 matmul of trellis codes on AVX2.
#include "kernels/avx2/matmul_trellis.h"

namespace walsh::avx2 {

void matmul_trellis(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y, int64_t ldy,
                    int64_t panel_begin, int64_t panel_end, bool accumulate) {
  const Call call(w, x, y, ldy, accumulate);
  with_trellis_steps(*w.trellis, [&](auto steps) {
    multiply_planes<TrellisWeights<decltype(steps)>>(call, m, panel_begin, panel_end);
  });
}

}  // namespace walsh::avx2
