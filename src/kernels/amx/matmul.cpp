// Multiplies int8 matrices with 16 and more vectors on AMX. The results have the bits of all other
// kernels, because sums of integers are exact, and the same code scales them. Fewer vectors take
// VNNI.
#include "codec/product/avx512vbmi/product_decoder.h"
#include "kernels/amx/tiles.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/avx512vbmi/permute_lookup.h"
#include "kernels/isa_tables.h"

namespace walsh::amx {

void matmul_i8(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y, int64_t ldy,
               int64_t panel_begin, int64_t panel_end, bool accumulate) {
  if (m * x.planes < detail::kTileVectors)
    return avx512vbmi::matmul_i8(w, x, m, y, ldy, panel_begin, panel_end, accumulate);
  if (w.trellis) return matmul_trellis(w, x, m, y, ldy, panel_begin, panel_end, accumulate);
  using Matmul = avx512::IntegerMatmul<Int8Tiles>;
  const avx512::VnniCall call(w, x, m, y, ldy, panel_begin, panel_end, accumulate);
  if (w.product) return Matmul::run_product<avx512vbmi::ProductDecoder>(call);
  Matmul::run_scalar<avx512vbmi::PermuteLookup>(call);
}

}  // namespace walsh::amx
