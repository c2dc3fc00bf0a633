// Multiplies int8 matrices with 16 and more vectors on AMX. The results have the bits of all other
// kernels, because sums of integers are exact, and the same code scales them. Fewer vectors take
// VNNI.
#include "codec/product/avx512vbmi/product_decoder.h"
#include "kernels/amx/tiles.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/avx512vbmi/permute_lookup.h"
#include "kernels/isa_tables.h"

namespace walsh::amx {

void matmul_i8(const PanelMatmul& call) {
  if (call.m * call.x.planes < detail::kTileVectors) return avx512vbmi::matmul_i8(call);
  if (call.w.trellis) return matmul_trellis(call);
  using Matmul = avx512::IntegerMatmul<Int8Tiles>;
  if (call.w.product) return Matmul::run_product<avx512vbmi::ProductDecoder>(call);
  Matmul::run_scalar<avx512vbmi::PermuteLookup>(call);
}

}  // namespace walsh::amx
