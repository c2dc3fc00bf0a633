// Multiplies matrices of trellis codes whose levels are sums of bytes, on AVX2. Quantiles have a
// file of their own.
#include "kernels/avx2/matmul_trellis.h"

namespace walsh::avx2 {

void matmul_trellis(const PanelMatmul& call) {
  if (call.w.trellis->rule == TrellisRule::quantiles) return matmul_quantiles(call);
  multiply_trellis<TrellisRule::bytes>(call);
}

}  // namespace walsh::avx2
