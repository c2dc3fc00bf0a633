// Decodes one unit (32 columns) of a panel of product codes with VBMI. Sixteen registers hold the
// codebook. 64 pointers are looked up at once, one weight of each vector at a time. Because the
// vectors of a block are neighbouring columns, the bytes come out in order.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/unroll.h"
#include "codec/product/panels.h"

namespace walsh::avx512vbmi {

class ProductDecoder {
 public:
  explicit ProductDecoder(const PanelMatrix& w)
      : twice_(_mm512_set1_epi8(static_cast<char>(2 * w.product->residual))) {
    const int8_t* planes = w.codebook.data() + kCodebookBytes;
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(0x80));
    for (int i = 0; i < kProductValues; ++i) {
      for (int part = 0; part < 4; ++part) {
        planes_[i][part] =
            _mm512_xor_si512(_mm512_load_si512(planes + i * kProductEntries + 64 * part), bias);
      }
    }
  }

  // Calls emit(Quad<n>, weights) for quads 0..7 of the unit, with level + 128 for all rows of the
  // panel.
  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, int, const Emit& emit) const {
    const __m512i signs = _mm512_load_si512(words + 2 * kPanelRows);
    detail::unroll<2>([&](auto half) WALSH_INLINE {
      const __m512i pointers = _mm512_load_si512(words + half * kPanelRows);
      const __mmask64 upper = _mm512_movepi8_mask(pointers);
      detail::unroll<4>([&](auto value) WALSH_INLINE {
        constexpr int kQuad = 4 * half + value;
        const __m512i(&plane)[4] = planes_[value];
        const __m512i levels =
            _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(plane[0], pointers, plane[1]),
                                   _mm512_permutex2var_epi8(plane[2], pointers, plane[3]));
        const __mmask64 negative =
            _mm512_test_epi8_mask(signs, _mm512_set1_epi8(static_cast<char>(1 << kQuad)));
        emit(detail::Quad<kQuad>{}, _mm512_mask_sub_epi8(levels, negative, levels, twice_));
      });
    });
  }

 private:
  __m512i planes_[kProductValues][4];
  __m512i twice_;
};

}  // namespace walsh::avx512vbmi
