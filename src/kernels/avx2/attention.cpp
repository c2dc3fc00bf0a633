// The AVX2 instance of attention in kernels/simd.
#include "kernels/simd/attention.h"

#include <cstdint>

#include "kernels/avx2/lanes.h"
#include "kernels/isa_tables.h"

namespace walsh::avx2 {

void attention(const KvView& kv, int kv_head, int heads, const float* q, int64_t ldq, int64_t m,
               int64_t position, int64_t window, float scale, float* out, int64_t ldo,
               float* scratch) {
  simd::attention<Lanes>(kv, kv_head, heads, q, ldq, m, position, window, scale, out, ldo, scratch);
}

}  // namespace walsh::avx2
