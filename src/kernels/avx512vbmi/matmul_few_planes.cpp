// Multiplies int8 matrices with few vectors of two planes with VBMI's byte permute.
#include "codec/product/avx512vbmi/product_decoder.h"
#include "kernels/avx512/matmul_few.h"
#include "kernels/avx512vbmi/permute_lookup.h"
#include "kernels/few_vectors.h"

namespace walsh::avx512vbmi {

void matmul_few_planes(const PanelMatmul& call) {
  if (call.w.product)
    return avx512::FewVectors::run_planes<2>(call, avx512::ProductWeights<ProductDecoder>(call.w));
  avx512::FewVectors::run_scalar<2, PermuteLookup>(call);
}

}  // namespace walsh::avx512vbmi
