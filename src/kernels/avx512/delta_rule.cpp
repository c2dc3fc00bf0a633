// The AVX-512 instance of the delta rule in kernels/simd.
#include "kernels/simd/delta_rule.h"

#include <cstdint>

#include "kernels/avx512/lanes.h"
#include "kernels/isa_tables.h"

namespace walsh::avx512 {

void delta_rule(const DeltaShape& shape, const DeltaState& state, const DeltaRows& rows,
                int64_t used, int64_t m, float* scratch) {
  simd::delta_rule<Lanes>(shape, state, rows, used, m, scratch);
}

}  // namespace walsh::avx512
