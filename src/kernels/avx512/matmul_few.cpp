// Multiplies int8 matrices with few vectors on processors with VNNI but without byte permutes
// across lanes.
#include "kernels/avx512/matmul_few.h"
#include "codec/product/avx512/product_words.h"
#include "kernels/avx512/shuffle_lookup.h"
#include "kernels/few_vectors.h"

namespace walsh::avx512 {

namespace {

using ProductDecoder = GatherProductDecoder<ProductWords>;

}  // namespace

void matmul_few(const PanelMatmul& call) {
  if (call.w.product)
    return FewVectors::run_planes<1>(call, ProductWeights<ProductDecoder>(call.w));
  FewVectors::run_scalar<1, ShuffleLookup>(call);
}

}  // namespace walsh::avx512
