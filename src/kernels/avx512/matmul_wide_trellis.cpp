// Multiplies matrices of trellis codes with 7 and 8 bits a step, on processors without byte
// permutes across lanes.
#include "codec/trellis/avx512/trellis_words.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/trellis_parts.h"

namespace walsh::avx512 {

void matmul_wide_trellis(const PanelMatmul& call) {
  MatmulVnni::run_trellis<
      TrellisDecoder, TrellisSteps<7, TrellisRule::bytes>, TrellisSteps<8, TrellisRule::bytes>,
      TrellisSteps<7, TrellisRule::quantiles>, TrellisSteps<8, TrellisRule::quantiles>>(call);
}

}  // namespace walsh::avx512
