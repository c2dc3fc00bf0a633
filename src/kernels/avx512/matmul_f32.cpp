// Multiplies float32 activations with decoded weights, 16 rows per register.
#include "kernels/simd/matmul_f32.h"

#include <immintrin.h>

#include "codec/trellis/avx512/trellis_words.h"
#include "kernels/avx512/lanes.h"
#include "kernels/isa_tables.h"

namespace walsh::avx512 {

namespace {

class LevelTable {
 public:
  explicit LevelTable(const float* levels) : levels_(_mm512_load_ps(levels)) {}

  WALSH_INLINE __m512 operator()(__m512i index) const {
    return _mm512_permutexvar_ps(index, levels_);
  }

 private:
  __m512 levels_;
};

struct Rows : Lanes {
  using Table = LevelTable;
  template <class Steps>
  using Trellis = detail::TrellisDecoder<Steps, TrellisWords>;
  static constexpr int kTokens = 12;

  WALSH_INLINE static Ints load_words(const uint32_t* p) { return _mm512_load_si512(p); }
  template <int Bits>
  WALSH_INLINE static Ints shift_right(Ints a) {
    return _mm512_srli_epi32(a, Bits);
  }
  WALSH_INLINE static Ints select(int mask, Ints a, Ints b) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(static_cast<char>(mask)), a, b, 0xca);
  }
  template <int Index>
  WALSH_INLINE static Reg byte(Ints a) {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(a, 24 - 8 * Index), 24));
  }
  WALSH_INLINE static Ints without_bias(Ints levels) {
    return _mm512_xor_si512(levels, _mm512_set1_epi8(static_cast<char>(TrellisWords::kBias)));
  }
  WALSH_INLINE static Reg f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
};

}  // namespace

void matmul_f32(const PanelMatmulF32& call) {
  detail::DecodedMatmul<Rows>::run(call);
}

}  // namespace walsh::avx512
