// Looks up 16 bytes with VBMI's byte permute, which reads the low 6 bits of an index. The table is
// repeated four times, so the nibble need not be masked.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/unroll.h"

namespace walsh::avx512vbmi {

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

}  // namespace walsh::avx512vbmi
