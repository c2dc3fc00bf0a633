// Looks up 16 bytes with a byte shuffle, which repeats a table in each 128-bit lane.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/unroll.h"

namespace walsh::avx512 {

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

}  // namespace walsh::avx512
