// Multiplies int8 matrices on processors with VNNI but without byte permutes across lanes; trellis
// codes have a file of their own.
#include "codec/product/avx512/product_words.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/isa_tables.h"

namespace walsh::avx512 {

namespace {

class ShuffleLookup {
 public:
  explicit ShuffleLookup(const uint8_t* table)
      : table_(_mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table)))) {}

  WALSH_INLINE __m512i operator()(__m512i index) const {
    return _mm512_shuffle_epi8(table_, _mm512_and_si512(index, _mm512_set1_epi8(0x0f)));
  }

 private:
  __m512i table_;
};

using ProductDecoder = GatherProductDecoder<ProductWords>;

}  // namespace

void matmul_i8(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y, int64_t ldy,
               int64_t panel_begin, int64_t panel_end, bool accumulate) {
  if (w.trellis) return matmul_trellis(w, x, m, y, ldy, panel_begin, panel_end, accumulate);
  const VnniCall call(w, x, m, y, ldy, panel_begin, panel_end, accumulate);
  if (w.product) return MatmulVnni::run_product<ProductDecoder>(call);
  MatmulVnni::run_scalar<ShuffleLookup>(call);
}

}  // namespace walsh::avx512
