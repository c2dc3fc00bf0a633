// Multiplies matrices of trellis codes whose levels are quantiles, with up to 6 bits a step, on
// processors without byte permutes across lanes.
#include "codec/trellis/avx512/trellis_words.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/trellis_parts.h"

namespace walsh::avx512 {

void matmul_quantiles(const PanelMatmul& call) {
  MatmulVnni::run_trellis<TrellisDecoder, TrellisSteps<4, TrellisRule::quantiles>,
                          TrellisSteps<5, TrellisRule::quantiles>,
                          TrellisSteps<6, TrellisRule::quantiles>>(call);
}

}  // namespace walsh::avx512
