// The AVX-512 instance of attention in kernels/simd.
#include "kernels/simd/attention.h"

#include <cstdint>

#include "kernels/avx512/lanes.h"
#include "kernels/isa_tables.h"

namespace walsh::avx512 {

void attention(const KvView& kv, int kv_head, int heads, const float* q, int64_t ldq, int64_t m,
               int64_t position, int64_t window, const LogitRule& logits, float* out, int64_t ldo,
               float* log_sums, float* scratch) {
  simd::attention<Lanes>(kv, kv_head, heads, q, ldq, m, position, window, logits, out, ldo,
                         log_sums, scratch);
}

float weigh(float* row, int64_t n, int64_t begin, int64_t end, const LogitRule& logits, float shift,
            float* largest, float* total) {
  return simd::weigh<Lanes>(row, n, begin, end, logits, shift, largest, total);
}

void scale_weights(const float* weights, const uint16_t* scales, int64_t n, float* out) {
  simd::scale_weights<Lanes>(weights, scales, n, out);
}

}  // namespace walsh::avx512
