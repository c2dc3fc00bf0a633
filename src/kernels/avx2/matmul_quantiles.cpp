// Multiplies matrices of trellis codes whose levels are quantiles, on AVX2.
#include "kernels/avx2/matmul_trellis.h"

namespace walsh::avx2 {

void matmul_quantiles(const PanelMatmul& call) {
  multiply_trellis<TrellisRule::quantiles>(call);
}

}  // namespace walsh::avx2
