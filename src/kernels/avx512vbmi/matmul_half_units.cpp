// Multiplies int8 matrices whose scales are for half a unit of columns with few vectors, with
// VBMI's byte permute.
#include "kernels/avx512/matmul_few.h"
#include "kernels/avx512vbmi/permute_lookup.h"
#include "kernels/few_vectors.h"

namespace walsh::avx512vbmi {

void matmul_half_units(const PanelMatmul& call) {
  avx512::FewVectors::run_half_units<PermuteLookup>(call);
}

}  // namespace walsh::avx512vbmi
