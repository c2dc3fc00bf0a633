// Multiplies int8 matrices on processors with VNNI but without byte permutes across lanes. Trellis
// codes and few vectors have files of their own.
#include "codec/product/avx512/product_words.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/avx512/shuffle_lookup.h"
#include "kernels/isa_tables.h"

namespace walsh::avx512 {

void matmul_i8(const PanelMatmul& call) {
  if (call.w.trellis) return matmul_trellis(call);
  if (FewVectors::take(call)) return matmul_few(call);
  if (call.w.product) return MatmulVnni::run_product<ProductDecoder>(call);
  MatmulVnni::run_scalar<ShuffleLookup>(call);
}

}  // namespace walsh::avx512
