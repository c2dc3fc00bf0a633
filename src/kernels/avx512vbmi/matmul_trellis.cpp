// Multiplies matrices of trellis codes whose levels are sums of bytes, with up to 6 bits a step,
// with VBMI's byte permutes. Other codes have files of their own.
#include "codec/trellis/avx512vbmi/trellis_decoder.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/isa_tables.h"
#include "kernels/trellis_parts.h"

namespace walsh::avx512vbmi {

void matmul_trellis(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y, int64_t ldy,
                    int64_t panel_begin, int64_t panel_end, bool accumulate) {
  const bool wide = w.trellis->step_bits > 6, quantiles = w.trellis->rule == TrellisRule::quantiles;
  if (wide || quantiles) {
    const auto other = wide ? matmul_wide_trellis : matmul_quantiles;
    return other(w, x, m, y, ldy, panel_begin, panel_end, accumulate);
  }
  avx512::MatmulVnni::run_trellis<TrellisDecoder, detail::TrellisSteps<4, TrellisRule::bytes>,
                                  detail::TrellisSteps<5, TrellisRule::bytes>,
                                  detail::TrellisSteps<6, TrellisRule::bytes>>(
      avx512::VnniCall(w, x, m, y, ldy, panel_begin, panel_end, accumulate));
}

}  // namespace walsh::avx512vbmi
