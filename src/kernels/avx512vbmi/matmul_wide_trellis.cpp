// Multiplies matrices of trellis codes with 7 and 8 bits a step, with VBMI's byte permutes.
#include "codec/trellis/avx512vbmi/trellis_decoder.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/trellis_parts.h"

namespace walsh::avx512vbmi {

void matmul_wide_trellis(const PanelMatmul& call) {
  avx512::MatmulVnni::run_trellis<TrellisDecoder, detail::TrellisSteps<7, TrellisRule::bytes>,
                                  detail::TrellisSteps<8, TrellisRule::bytes>,
                                  detail::TrellisSteps<7, TrellisRule::quantiles>,
                                  detail::TrellisSteps<8, TrellisRule::quantiles>>(call);
}

}  // namespace walsh::avx512vbmi
