// The int8 matmul with VBMI's byte permute, which reads the low 6 bits of an index: a table
// repeated four times makes masking the nibble unnecessary. Trellis codes have files of their own.
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/avx512vbmi/product_decoder.h"
#include "kernels/isa_tables.h"

namespace walsh::avx512vbmi {

namespace {

class PermuteLookup {
 public:
  explicit PermuteLookup(const uint8_t* table)
      : table_(_mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table)))) {}

  WALSH_INLINE __m512i operator()(__m512i index) const {
    return _mm512_permutexvar_epi8(index, table_);
  }

 private:
  __m512i table_;
};

}  // namespace

void matmul_i8(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y, int64_t ldy,
               int64_t panel_begin, int64_t panel_end, bool accumulate) {
  if (w.trellis) {
    const bool table = w.trellis->rule == TrellisRule::table;
    return (table ? matmul_table_trellis : matmul_hash_trellis)(w, x, m, y, ldy, panel_begin,
                                                                panel_end, accumulate);
  }
  const avx512::VnniCall call(w, x, m, y, ldy, panel_begin, panel_end, accumulate);
  if (w.product) return avx512::MatmulVnni::run_product<ProductDecoder>(call);
  avx512::MatmulVnni::run_scalar<PermuteLookup>(call);
}

}  // namespace walsh::avx512vbmi
