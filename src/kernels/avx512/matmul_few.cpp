// Multiplies int8 matrices with few vectors on processors with VNNI but without byte permutes
// across lanes.
#include "kernels/avx512/matmul_few.h"
#include "codec/product/avx512/product_words.h"
#include "kernels/avx512/shuffle_lookup.h"

namespace walsh::avx512 {

void matmul_few(const PanelMatmul& call) {
  FewVectors::run_codes<ShuffleLookup, ProductDecoder>(call);
}

}  // namespace walsh::avx512
