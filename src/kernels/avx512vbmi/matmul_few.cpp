// Multiplies int8 matrices with few vectors with VBMI's byte permute.
#include "kernels/avx512/matmul_few.h"
#include "codec/product/avx512vbmi/product_decoder.h"
#include "kernels/avx512vbmi/permute_lookup.h"
#include "kernels/few_vectors.h"

namespace walsh::avx512vbmi {

void matmul_few(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y, int64_t ldy,
                int64_t panel_begin, int64_t panel_end, bool accumulate) {
  const avx512::VnniCall call(w, x, m, y, ldy, panel_begin, panel_end, accumulate);
  if (w.product)
    return avx512::FewVectors::run_planes<1>(call, avx512::ProductWeights<ProductDecoder>(w));
  avx512::FewVectors::run_scalar<1, PermuteLookup>(call);
}

}  // namespace walsh::avx512vbmi
