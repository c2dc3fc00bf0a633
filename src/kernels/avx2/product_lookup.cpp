// Multiplies by lookup on AVX2, 32 rows at a time. A table of 256 bytes takes sixteen shuffles, one
// of which the upper half of a pointer selects.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/unroll.h"
#include "codec/product/product_tables.h"
#include "kernels/isa_tables.h"
#include "kernels/simd/product_lookup.h"

namespace walsh::avx2 {

namespace {

using namespace detail;

constexpr int kPanels = 2;  // The rows of this many panels fill a register of bytes.
constexpr int kUnitVectors = 8;
constexpr int kParts = 4;  // The rows of kPanels fill this many registers of eight.

struct Tables {
  alignas(32) uint8_t products[kGroupVectors][kProductEntries];  // Each product has a bias of 128.
  alignas(16) int8_t signs[kGroupVectors][kSignSums];
  float step;
};

// Fills the tables of a group. Its loops over entries are plain because the compiler turns them
// into vector code.
class TableFiller {
 public:
  explicit TableFiller(const PanelMatrix& w) : residual_(w.product->residual) {
    for (int i = 0; i < kProductValues; ++i) {
      for (int p = 0; p < kProductEntries; ++p)
        entries_[i][p] = w.codebook.data()[kCodebookBytes + i * kProductEntries + p] - residual_;
    }
  }

  void fill(const int8_t* q, int64_t columns, Tables& tables) {
    const int vectors = static_cast<int>(columns / kProductValues);
    int largest = 0;
    for (int v = 0; v < vectors; ++v) {
      const int8_t* a = q + vector_column(v);
      largest = std::max(largest, multiply(a, v) + add_signs(a, v));
    }
    const int multiplier = table_multiplier(largest);
    const auto rounded = [&](int value) { return (value * multiplier + (1 << 14)) >> 15; };
    for (int v = 0; v < vectors; ++v) {
      for (int p = 0; p < kProductEntries; ++p)
        tables.products[v][p] = static_cast<uint8_t>(rounded(products_[v][p]) + 128);
      for (int b = 0; b < kSignSums; ++b)
        tables.signs[v][b] = static_cast<int8_t>(rounded(signs_[v][b]));
    }
    tables.step = table_step(multiplier);
  }

 private:
  int multiply(const int8_t* a, int v) {
    int top = 0;
    for (int p = 0; p < kProductEntries; ++p) {
      const int sum = entries_[0][p] * a[0] + entries_[1][p] * a[4] + entries_[2][p] * a[8] +
                      entries_[3][p] * a[12];
      products_[v][p] = static_cast<int16_t>(std::clamp(sum, -32768, 32767));
      top = std::max(top, std::abs(int{products_[v][p]}));
    }
    return top;
  }
  int add_signs(const int8_t* a, int v) {
    int magnitude = 0;
    for (int i = 0; i < kProductValues; ++i)
      magnitude += residual_ * std::abs(int{a[4 * i]});
    for (int b = 0; b < kSignSums; ++b) {
      int sum = 0;
      for (int i = 0; i < kProductValues; ++i)
        sum += (b >> i & 1) != 0 ? -a[4 * i] : a[4 * i];
      signs_[v][b] = static_cast<int16_t>(residual_ * sum);
    }
    return magnitude;
  }

  int residual_;
  int entries_[kProductValues][kProductEntries];
  int16_t products_[kGroupVectors][kProductEntries];
  int16_t signs_[kGroupVectors][kSignSums];
};

WALSH_INLINE inline __m256i load(const uint32_t* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}

// Gathers byte v of the 32-bit lanes of registers a to d. Lane r of out[v] has the bytes of lane r
// of a, c, b, d.
WALSH_INLINE inline void transpose(const uint32_t* const (&words)[kParts], int64_t offset,
                                   __m256i (&out)[4]) {
  const __m256i a = load(words[0] + offset), b = load(words[1] + offset);
  const __m256i c = load(words[2] + offset), d = load(words[3] + offset);
  const __m256i ab_low = _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
  const __m256i ab_high = _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xaa);
  const __m256i cd_low = _mm256_blend_epi16(c, _mm256_slli_epi32(d, 16), 0xaa);
  const __m256i cd_high = _mm256_blend_epi16(_mm256_srli_epi32(c, 16), d, 0xaa);
  const __m256i odd = _mm256_set1_epi16(static_cast<short>(0xff00));
  out[0] = _mm256_blendv_epi8(ab_low, _mm256_slli_epi16(cd_low, 8), odd);
  out[1] = _mm256_blendv_epi8(_mm256_srli_epi16(ab_low, 8), cd_low, odd);
  out[2] = _mm256_blendv_epi8(ab_high, _mm256_slli_epi16(cd_high, 8), odd);
  out[3] = _mm256_blendv_epi8(_mm256_srli_epi16(ab_high, 8), cd_high, odd);
}

WALSH_INLINE inline __m256i shuffle(const void* table, __m256i index) {
  const __m128i part = _mm_load_si128(static_cast<const __m128i*>(table));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(part), index);
}

WALSH_INLINE inline __m256i look_up(const uint8_t* table, __m256i pointers) {
  const __m256i low = _mm256_and_si256(pointers, _mm256_set1_epi8(0x0f));
  const __m256i bit6 = _mm256_add_epi8(pointers, pointers);
  const __m256i bit5 = _mm256_add_epi8(bit6, bit6);
  const __m256i bit4 = _mm256_add_epi8(bit5, bit5);
  __m256i quarter[4];
  unroll<4>([&](auto i) WALSH_INLINE {
    const __m256i a =
        _mm256_blendv_epi8(shuffle(table + 64 * i, low), shuffle(table + 64 * i + 16, low), bit4);
    const __m256i b = _mm256_blendv_epi8(shuffle(table + 64 * i + 32, low),
                                         shuffle(table + 64 * i + 48, low), bit4);
    quarter[i] = _mm256_blendv_epi8(a, b, bit5);
  });
  return _mm256_blendv_epi8(_mm256_blendv_epi8(quarter[0], quarter[1], bit6),
                            _mm256_blendv_epi8(quarter[2], quarter[3], bit6), pointers);
}

// Holds sums of rows over a group, with a bias of 128 per vector. It has the sum of all bytes plus
// 256 times the sum of odd bytes modulo 2^16, and the sum of the odd bytes.
struct Sums {
  __m256i all = _mm256_setzero_si256(), odd = _mm256_setzero_si256();

  WALSH_INLINE void add(__m256i bytes) {
    all = _mm256_add_epi16(all, bytes);
    odd = _mm256_add_epi16(odd, _mm256_srli_epi16(bytes, 8));
  }
};

WALSH_INLINE inline void add_unit(const Tables& tables, int first,
                                  const uint32_t* const (&words)[kParts], int64_t offset,
                                  Sums& sums) {
  __m256i signs[4];
  transpose(words, offset + 2 * kPanelRows, signs);
  const __m256i nibble = _mm256_set1_epi8(0x0f);
  for (int half = 0; half < 2; ++half) {
    __m256i pointers[4];
    transpose(words, offset + half * kPanelRows, pointers);
    unroll<4>([&](auto v) WALSH_INLINE {
      const int vector = first + 4 * half + v;
      const __m256i index = _mm256_and_si256(signs[v], nibble);
      signs[v] = _mm256_srli_epi16(signs[v], 4);
      sums.add(_mm256_add_epi8(look_up(tables.products[vector], pointers[v]),
                               shuffle(tables.signs[vector], index)));
    });
  }
}

// Adds sum * scale to y for eight rows of a panel.
void add_to(const PanelMatrix& w, int64_t row, int64_t group, __m256i sum, float factor, float* y) {
  const uint16_t* halves = w.scales.data() +
                           (row / kPanelRows * ceil_div(w.cols, w.group) + group) * kPanelRows +
                           row % kPanelRows;
  const __m256 scale =
      _mm256_mul_ps(_mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(halves))),
                    _mm256_set1_ps(w.product->unit));
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const auto left = static_cast<int>(std::clamp<int64_t>(w.rows - row, 0, 8));
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(left), lanes);
  const __m256 total =
      _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(factor)),
                      _mm256_maskload_ps(y + row, mask));
  _mm256_maskstore_ps(y + row, mask, total);
}

// Adds the products of columns [c, c + columns) of one or two panels from `panel` on.
void add_group(const PanelMatrix& w, const Tables& tables, int64_t panel, int64_t panels, int64_t c,
               int64_t columns, float x_scale, float* y) {
  const uint32_t* words[kParts];
  for (int64_t part = 0; part < kParts; ++part) {  // The first panel stands for a missing one.
    const int64_t p = panel + std::min(part / 2, panels - 1);
    words[part] = w.codes.data() + p * panel_words(w, kProductWords) +
                  c / kUnitColumns * kProductWords * kPanelRows + 8 * (part % 2);
  }
  Sums sums;
  for (int64_t u = 0; u < columns / kUnitColumns; ++u)
    add_unit(tables, static_cast<int>(u) * kUnitVectors, words, u * kProductWords * kPanelRows,
             sums);
  const __m256i bias = _mm256_set1_epi32(static_cast<int>(columns / kProductValues) * 128);
  const __m256i even = _mm256_sub_epi16(sums.all, _mm256_slli_epi16(sums.odd, 8));
  const __m256i low = _mm256_set1_epi32(0xffff);
  const __m256i rows[kParts] = {_mm256_and_si256(even, low), _mm256_srli_epi32(even, 16),
                                _mm256_and_si256(sums.odd, low), _mm256_srli_epi32(sums.odd, 16)};
  for (int64_t part = 0; part < 2 * panels; ++part) {
    add_to(w, panel * kPanelRows + 8 * part, c / w.group, _mm256_sub_epi32(rows[part], bias),
           x_scale, y);
  }
}

struct Engine {
  using Tables = avx2::Tables;
  using Filler = TableFiller;
  static constexpr int64_t kPanels = avx2::kPanels;
  static constexpr auto add_group = &avx2::add_group;
};

}  // namespace

void matmul_lookup(const PanelMatmul& call) {
  lookup_products<Engine>(call);
}

}  // namespace walsh::avx2
