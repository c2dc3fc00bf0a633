// Compiles what kernels/simd computes for AVX2.
#include "kernels/simd/lane_ops.h"

#include "kernels/avx2/lanes.h"
#include "kernels/isa_tables.h"

namespace walsh::avx2 {

void set_lane_ops(Ops& ops) {
  simd::set_lane_ops<Lanes>(ops);
}

}  // namespace walsh::avx2
