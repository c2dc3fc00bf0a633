#include <immintrin.h>

#include <cstring>

#include "codec/product/product_kernels.h"

namespace walsh::detail {
namespace {

constexpr int kLanes = 8;  // A register holds this many vectors.

// Adds up the squared differences of two of a vector's four weights.
__m256i pair_cost(__m256i x, const int16_t* entry, __m256i residual) {
  int32_t pair;
  std::memcpy(&pair, entry, 4);
  const __m256i distance = _mm256_abs_epi16(_mm256_sub_epi16(x, _mm256_set1_epi32(pair)));
  const __m256i left = _mm256_sub_epi16(distance, residual);
  return _mm256_madd_epi16(left, left);
}

__m256i load(const int16_t* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}

}  // namespace

void product_search_avx2(const ProductTable& table, const ProductTargets& targets, int vectors,
                         uint8_t* pointers) {
  const __m256i residual = _mm256_set1_epi16(table.residual);
  for (int v = 0; v < vectors; v += kLanes) {
    const __m256i low = load(targets.pairs[0][v]), high = load(targets.pairs[1][v]);
    __m256i least = _mm256_set1_epi32(INT32_MAX), index = _mm256_setzero_si256();
    for (int entry = 0; entry < kProductEntries; ++entry) {
      const __m256i cost = _mm256_add_epi32(pair_cost(low, table.entries[entry], residual),
                                            pair_cost(high, table.entries[entry] + 2, residual));
      const __m256i less = _mm256_cmpgt_epi32(least, cost);
      least = _mm256_min_epi32(least, cost);
      index = _mm256_blendv_epi8(index, _mm256_set1_epi32(entry), less);
    }
    alignas(32) int32_t lanes[kLanes];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), index);
    for (int i = 0; i < kLanes; ++i)
      pointers[v + i] = static_cast<uint8_t>(lanes[i]);
  }
}

}  // namespace walsh::detail
