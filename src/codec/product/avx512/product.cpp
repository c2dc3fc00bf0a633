#include <immintrin.h>

#include <cstring>

#include "codec/product/product_kernels.h"

namespace walsh::detail {
namespace {

constexpr int kLanes = 16;  // A register holds this many vectors.

__m512i pair_of(const int16_t* entry) {
  int32_t pair;
  std::memcpy(&pair, entry, 4);
  return _mm512_set1_epi32(pair);
}

// Returns |x - entry| - residual for two of a vector's four weights.
__m512i left_of(__m512i x, __m512i entry, __m512i residual) {
  return _mm512_sub_epi16(_mm512_abs_epi16(_mm512_sub_epi16(x, entry)), residual);
}

// Searches `Count` registers of vectors at a time, which hides the latency of one dependency chain.
template <int Count>
void search(const ProductTable& table, const ProductTargets& targets, int first,
            uint8_t* pointers) {
  const __m512i residual = _mm512_set1_epi16(table.residual);
  __m512i low[Count], high[Count], least[Count], index[Count];
  for (int k = 0; k < Count; ++k) {
    low[k] = _mm512_load_si512(targets.pairs[0][first + kLanes * k]);
    high[k] = _mm512_load_si512(targets.pairs[1][first + kLanes * k]);
    least[k] = _mm512_set1_epi32(INT32_MAX);
    index[k] = _mm512_setzero_si512();
  }
  for (int entry = 0; entry < kProductEntries; ++entry) {
    const __m512i entry_low = pair_of(table.entries[entry]);
    const __m512i entry_high = pair_of(table.entries[entry] + 2);
    const __m512i number = _mm512_set1_epi32(entry);
    for (int k = 0; k < Count; ++k) {
      const __m512i a = left_of(low[k], entry_low, residual);
      const __m512i b = left_of(high[k], entry_high, residual);
      const __m512i cost = _mm512_dpwssd_epi32(_mm512_madd_epi16(a, a), b, b);
      const __mmask16 less = _mm512_cmplt_epi32_mask(cost, least[k]);
      least[k] = _mm512_min_epi32(least[k], cost);
      index[k] = _mm512_mask_mov_epi32(index[k], less, number);
    }
  }
  for (int k = 0; k < Count; ++k) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(pointers + first + kLanes * k),
                     _mm512_cvtepi32_epi8(index[k]));
  }
}

}  // namespace

void product_search_avx512(const ProductTable& table, const ProductTargets& targets, int vectors,
                           uint8_t* pointers) {
  if (vectors > kLanes) return search<2>(table, targets, 0, pointers);
  search<1>(table, targets, 0, pointers);
}

}  // namespace walsh::detail
