// Multiplies matrices of trellis codes whose levels are quantiles, with up to 6 bits a step, with
// VBMI's byte permutes.
#include "codec/trellis/avx512vbmi/trellis_decoder.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/trellis_parts.h"

namespace walsh::avx512vbmi {

void matmul_quantiles(const PanelMatmul& call) {
  avx512::MatmulVnni::run_trellis<TrellisDecoder, detail::TrellisSteps<4, TrellisRule::quantiles>,
                                  detail::TrellisSteps<5, TrellisRule::quantiles>,
                                  detail::TrellisSteps<6, TrellisRule::quantiles>>(call);
}

}  // namespace walsh::avx512vbmi
