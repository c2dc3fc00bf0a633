// Multiplies int8 matrices with few vectors with VBMI's byte permute.
#include "kernels/avx512/matmul_few.h"
#include "codec/product/avx512vbmi/product_decoder.h"
#include "kernels/avx512vbmi/permute_lookup.h"
#include "kernels/few_vectors.h"

namespace walsh::avx512vbmi {

void matmul_few(const PanelMatmul& call) {
  if (call.w.product)
    return avx512::FewVectors::run_planes<1>(call, avx512::ProductWeights<ProductDecoder>(call.w));
  avx512::FewVectors::run_scalar<1, PermuteLookup>(call);
}

}  // namespace walsh::avx512vbmi
