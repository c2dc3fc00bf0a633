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

void matmul_few(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y, int64_t ldy,
                int64_t panel_begin, int64_t panel_end, bool accumulate) {
  const VnniCall call(w, x, m, y, ldy, panel_begin, panel_end, accumulate);
  if (w.product) return FewVectors::run_planes<1>(call, ProductWeights<ProductDecoder>(w));
  FewVectors::run_scalar<1, ShuffleLookup>(call);
}

}  // namespace walsh::avx512
