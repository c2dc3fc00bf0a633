// Multiplies int8 matrices whose scales are for half a unit of columns with few vectors, on
// processors with VNNI but without byte permutes across lanes.
#include "kernels/avx512/matmul_few.h"
#include "kernels/avx512/shuffle_lookup.h"
#include "kernels/few_vectors.h"

namespace walsh::avx512 {

void matmul_half_units(const PanelMatmul& call) {
  FewVectors::run_half_units<ShuffleLookup>(call);
}

}  // namespace walsh::avx512
