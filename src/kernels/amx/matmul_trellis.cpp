// Multiplies matrices of trellis codes with 16 and more vectors on AMX.
#include "codec/trellis/avx512vbmi/trellis_decoder.h"
#include "kernels/amx/tiles.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/isa_tables.h"

namespace walsh::amx {

void matmul_trellis(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y, int64_t ldy,
                    int64_t panel_begin, int64_t panel_end, bool accumulate) {
  avx512::IntegerMatmul<Int8Tiles>::run_trellis<avx512vbmi::TrellisDecoder>(
      avx512::VnniCall(w, x, m, y, ldy, panel_begin, panel_end, accumulate));
}

}  // namespace walsh::amx
