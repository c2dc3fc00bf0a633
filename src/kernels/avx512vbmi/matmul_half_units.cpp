// Multiplies int8 matrices whose scales are for half a unit of columns with few vectors, with
// VBMI's byte permute.
#include "kernels/avx512/matmul_few.h"
#include "kernels/avx512vbmi/permute_lookup.h"
#include "kernels/few_vectors.h"

namespace walsh::avx512vbmi {

void matmul_half_units(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y,
                       int64_t ldy, int64_t panel_begin, int64_t panel_end, bool accumulate) {
  avx512::FewVectors::run_half_units<PermuteLookup>(
      avx512::VnniCall(w, x, m, y, ldy, panel_begin, panel_end, accumulate));
}

}  // namespace walsh::avx512vbmi
