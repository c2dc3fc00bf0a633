// Multiplies matrices of trellis codes whose levels are sums of bytes, with up to 6 bits a step, on
// processors without byte permutes across lanes. Other codes have files of their own.
#include "codec/trellis/avx512/trellis_words.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/isa_tables.h"
#include "kernels/trellis_parts.h"

namespace walsh::avx512 {

void matmul_trellis(const PanelMatmul& call) {
  const bool wide = call.w.trellis->step_bits > 6,
             quantiles = call.w.trellis->rule == TrellisRule::quantiles;
  if (wide || quantiles) {
    const auto other = wide ? matmul_wide_trellis : matmul_quantiles;
    return other(call);
  }
  MatmulVnni::run_trellis<TrellisDecoder, TrellisSteps<4, TrellisRule::bytes>,
                          TrellisSteps<5, TrellisRule::bytes>, TrellisSteps<6, TrellisRule::bytes>>(
      call);
}

}  // namespace walsh::avx512
