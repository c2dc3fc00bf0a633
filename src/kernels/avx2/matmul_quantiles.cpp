// Multiplies matrices of trellis codes whose levels are quantiles, on AVX2.
#include "kernels/avx2/matmul_trellis.h"

namespace walsh::avx2 {

void matmul_quantiles(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y,
                      int64_t ldy, int64_t panel_begin, int64_t panel_end, bool accumulate) {
  multiply_trellis<TrellisRule::quantiles>(Call(w, x, y, ldy, accumulate), m, panel_begin,
                                           panel_end);
}

}  // namespace walsh::avx2
