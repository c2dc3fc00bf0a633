// Multiplies float32 activations with decoded weights, 8 rows per register.
#include "kernels/simd/matmul_f32.h"

#include <immintrin.h>

#include "codec/trellis/avx2/trellis_words.h"
#include "kernels/avx2/lanes.h"
#include "kernels/isa_tables.h"

namespace walsh::avx2 {

namespace {

class LevelTable {
 public:
  explicit LevelTable(const float* levels)
      : low_(_mm256_load_ps(levels)), high_(_mm256_load_ps(levels + 8)) {}

  WALSH_INLINE __m256 operator()(__m256i index) const {
    const __m256 top = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low_, index),
                            _mm256_permutevar8x32_ps(high_, index), top);
  }

 private:
  __m256 low_, high_;
};

struct Rows : Lanes {
  using Table = LevelTable;
  template <class Steps>
  using Trellis = detail::TrellisDecoder<Steps, TrellisWords>;
  static constexpr int kTokens = 6;

  WALSH_INLINE static Ints load_words(const uint32_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  template <int Bits>
  WALSH_INLINE static Ints shift_right(Ints a) {
    return _mm256_srli_epi32(a, Bits);
  }
  WALSH_INLINE static Ints select(int mask, Ints a, Ints b) {
    const Ints m = _mm256_set1_epi8(static_cast<char>(mask));
    return _mm256_or_si256(_mm256_and_si256(m, a), _mm256_andnot_si256(m, b));
  }
  template <int Index>
  WALSH_INLINE static Reg byte(Ints a) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(a, 24 - 8 * Index), 24));
  }
  WALSH_INLINE static Ints without_bias(Ints levels) { return levels; }
  WALSH_INLINE static Reg f16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
};

}  // namespace

void matmul_f32(const PanelMatmulF32& call) {
  detail::DecodedMatmul<Rows>::run(call);
}

}  // namespace walsh::avx2
