// Multiplies int8 matrices with few vectors with VBMI's byte permute.
#include "kernels/avx512/matmul_few.h"
#include "codec/product/avx512vbmi/product_decoder.h"
#include "kernels/avx512vbmi/permute_lookup.h"

namespace walsh::avx512vbmi {

void matmul_few(const PanelMatmul& call) {
  avx512::FewVectors::run_codes<PermuteLookup, ProductDecoder>(call);
}

}  // namespace walsh::avx512vbmi
