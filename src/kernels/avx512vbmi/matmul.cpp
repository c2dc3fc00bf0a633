// Multiplies int8 matrices with VBMI's byte permute. Trellis codes and few vectors have files of
// their own.
#include "codec/product/avx512vbmi/product_decoder.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/avx512vbmi/permute_lookup.h"
#include "kernels/isa_tables.h"

namespace walsh::avx512vbmi {

void matmul_i8(const PanelMatmul& call) {
  if (call.w.trellis) return matmul_trellis(call);
  if (avx512::FewVectors::take(call)) return matmul_few(call);
  if (call.w.product) return avx512::MatmulVnni::run_product<ProductDecoder>(call);
  avx512::MatmulVnni::run_scalar<PermuteLookup>(call);
}

}  // namespace walsh::avx512vbmi
