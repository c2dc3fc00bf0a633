// Multiplies matrices of trellis codes whose levels are sums of bytes, on AVX2. Quantiles have a
// file of their own.
#include "kernels/avx2/matmul_trellis.h"

namespace walsh::avx2 {

void matmul_trellis(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y, int64_t ldy,
                    int64_t panel_begin, int64_t panel_end, bool accumulate) {
  if (w.trellis->rule == TrellisRule::quantiles)
    return matmul_quantiles(w, x, m, y, ldy, panel_begin, panel_end, accumulate);
  multiply_trellis<TrellisRule::bytes>(Call(w, x, y, ldy, accumulate), m, panel_begin, panel_end);
}

}  // namespace walsh::avx2
