// Compiles what kernels/simd computes for AVX-512.
#include "kernels/simd/lane_ops.h"

#include "kernels/avx512/lanes.h"
#include "kernels/isa_tables.h"

namespace walsh::avx512 {

void set_lane_ops(Ops& ops) {
  simd::set_lane_ops<Lanes>(ops);
}

}  // namespace walsh::avx512
