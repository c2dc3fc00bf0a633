// Multiplies by lookup with VBMI. A table of 256 bytes fills four registers, and 64 rows are looked
// up at a time. Tables of one group of columns stay in the first-level cache while all rows use
// them.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "base/unroll.h"
#include "codec/product/product_tables.h"
#include "kernels/isa_tables.h"
#include "kernels/simd/product_lookup.h"

namespace walsh::avx512vbmi {

namespace {

using namespace detail;

constexpr int kPanels = 4;  // The rows of this many panels fill a register of bytes.
constexpr int kUnitVectors = 8;

struct Tables {
  alignas(64) uint8_t products[kGroupVectors][kProductEntries];  // Each product has a bias of 128.
  alignas(64) int8_t signs[kGroupVectors][kSignSums];
  float step;
};

// Fills the tables of one group.
class TableFiller {
 public:
  explicit TableFiller(const PanelMatrix& w) : residual_(w.product->residual) {
    // Entry 64b + 16l + 4k + i goes to lane 4l + i of register 4b + k. Packing the products of the
    // four registers of a b takes four bytes from each for every 128 bits, so the bytes come out in
    // the order of the entries.
    alignas(64) uint32_t lanes[16];
    for (int b = 0; b < 4; ++b) {
      for (int k = 0; k < 4; ++k) {
        for (int lane = 0; lane < 16; ++lane) {
          const int entry = 64 * b + 16 * (lane / 4) + 4 * k + lane % 4;
          __builtin_memcpy(&lanes[lane], w.codebook.data() + entry * kProductValues, 4);
        }
        entries_[4 * b + k] =
            _mm512_xor_si512(_mm512_load_si512(lanes), _mm512_set1_epi8(static_cast<char>(0x80)));
      }
    }
  }

  void fill(const int8_t* q, int64_t columns, Tables& tables) {
    const int vectors = static_cast<int>(columns / kProductValues);
    int largest = 0;
    for (int v = 0; v < vectors; ++v) {
      const int top = multiply(q + vector_column(v), v);
      largest = std::max(largest, top + add_signs(q + vector_column(v), v));
    }
    const int multiplier = table_multiplier(largest);
    for (int v = 0; v < vectors; ++v)
      round(v, static_cast<short>(multiplier), tables);
    tables.step = table_step(multiplier);
  }

 private:
  // Sets products_[v] to the 16-bit products and returns their largest magnitude.
  int multiply(const int8_t* a, int v) {
    const int sum = a[0] + a[4] + a[8] + a[12];
    const __m512i four = _mm512_set1_epi32(static_cast<int>(
        uint32_t{static_cast<uint8_t>(a[0])} | uint32_t{static_cast<uint8_t>(a[4])} << 8 |
        uint32_t{static_cast<uint8_t>(a[8])} << 16 | uint32_t{static_cast<uint8_t>(a[12])} << 24));
    const __m512i start = _mm512_set1_epi32(-(128 + residual_) * sum);
    __m512i top = _mm512_setzero_si512();
    for (int i = 0; i < 16; i += 2) {
      const __m512i packed = _mm512_packs_epi32(_mm512_dpbusd_epi32(start, entries_[i], four),
                                                _mm512_dpbusd_epi32(start, entries_[i + 1], four));
      // |-32768| becomes 32768, which is right for an unsigned maximum.
      top = _mm512_max_epu16(top, _mm512_abs_epi16(packed));
      _mm512_store_si512(products_[v][i / 2], packed);
    }
    const __m512i wide = _mm512_max_epu32(_mm512_and_si512(top, _mm512_set1_epi32(0xffff)),
                                          _mm512_srli_epi32(top, 16));
    return static_cast<int>(_mm512_reduce_max_epu32(wide));
  }

  // Sets signs_[v] to the 16 sums of signed residuals and returns their largest magnitude.
  int add_signs(const int8_t* a, int v) {
    __m256i sum = _mm256_setzero_si256();
    int magnitude = 0;
    for (int i = 0; i < kProductValues; ++i) {
      const auto value = static_cast<short>(residual_ * a[4 * i]);
      magnitude += value < 0 ? -value : value;
      const auto negative = static_cast<__mmask16>(i == 0   ? 0xaaaa
                                                   : i == 1 ? 0xcccc
                                                   : i == 2 ? 0xf0f0
                                                            : 0xff00);
      const __m256i term = _mm256_set1_epi16(value);
      sum = _mm256_mask_sub_epi16(_mm256_add_epi16(sum, term), negative, sum, term);
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(signs_[v]), sum);
    return magnitude;
  }

  void round(int v, short multiplier, Tables& tables) const {
    const __m512i factor = _mm512_set1_epi16(multiplier);
    for (int b = 0; b < 4; ++b) {
      const __m512i low = _mm512_mulhrs_epi16(_mm512_load_si512(products_[v][2 * b]), factor);
      const __m512i high = _mm512_mulhrs_epi16(_mm512_load_si512(products_[v][2 * b + 1]), factor);
      _mm512_store_si512(tables.products[v] + 64 * b,
                         _mm512_xor_si512(_mm512_packs_epi16(low, high),
                                          _mm512_set1_epi8(static_cast<char>(0x80))));
    }
    const __m256i signs = _mm256_load_si256(reinterpret_cast<const __m256i*>(signs_[v]));
    const __m256i rounded = _mm256_mulhrs_epi16(signs, _mm512_castsi512_si256(factor));
    _mm_store_si128(reinterpret_cast<__m128i*>(tables.signs[v]), _mm256_cvtepi16_epi8(rounded));
  }

  int residual_;
  __m512i entries_[16];
  alignas(64) int16_t products_[kGroupVectors][8][32];
  alignas(64) int16_t signs_[kGroupVectors][kSignSums];
};

// Gathers byte v of the 32-bit lanes of panels a to d. Lane r of out[v] has the bytes of row r of
// a, c, b, d.
WALSH_INLINE inline void transpose(const uint32_t* const (&words)[kPanels], int64_t offset,
                                   __m512i (&out)[4]) {
  const __m512i a = _mm512_load_si512(words[0] + offset), b = _mm512_load_si512(words[1] + offset);
  const __m512i c = _mm512_load_si512(words[2] + offset), d = _mm512_load_si512(words[3] + offset);
  constexpr __mmask32 kHigh = 0xaaaaaaaa;
  const __m512i ab_low = _mm512_mask_blend_epi16(kHigh, a, _mm512_slli_epi32(b, 16));
  const __m512i ab_high = _mm512_mask_blend_epi16(kHigh, _mm512_srli_epi32(a, 16), b);
  const __m512i cd_low = _mm512_mask_blend_epi16(kHigh, c, _mm512_slli_epi32(d, 16));
  const __m512i cd_high = _mm512_mask_blend_epi16(kHigh, _mm512_srli_epi32(c, 16), d);
  const __m512i low = _mm512_set1_epi16(0x00ff);
  const auto join = [&](__m512i even, __m512i odd)
                        WALSH_INLINE { return _mm512_ternarylogic_epi32(low, even, odd, 0xca); };
  out[0] = join(ab_low, _mm512_slli_epi16(cd_low, 8));
  out[1] = join(_mm512_srli_epi16(ab_low, 8), cd_low);
  out[2] = join(ab_high, _mm512_slli_epi16(cd_high, 8));
  out[3] = join(_mm512_srli_epi16(ab_high, 8), cd_high);
}

// Holds sums of rows of four panels over a group, with a bias of 128 per vector. It has the sum of
// all bytes plus 256 times the sum of odd bytes modulo 2^16, and the sum of the odd bytes.
struct Sums {
  __m512i all = _mm512_setzero_si512(), odd = _mm512_setzero_si512();

  WALSH_INLINE void add(__m512i bytes) {
    all = _mm512_add_epi16(all, bytes);
    odd = _mm512_add_epi16(odd, _mm512_srli_epi16(bytes, 8));
  }
};

WALSH_INLINE inline __m512i look_up(const uint8_t* table, __m512i pointers) {
  const __m512i low =
      _mm512_permutex2var_epi8(_mm512_load_si512(table), pointers, _mm512_load_si512(table + 64));
  const __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(table + 128), pointers,
                                                _mm512_load_si512(table + 192));
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(pointers), low, high);
}

// Looks up a sign table of 16 bytes. It is repeated four times, because a permute reads six bits,
// two of which have no meaning here.
WALSH_INLINE inline __m512i look_up(const int8_t* table, __m512i signs) {
  const __m512i bytes =
      _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
  return _mm512_permutexvar_epi8(signs, bytes);
}

WALSH_INLINE inline void add_unit(const Tables& tables, int first,
                                  const uint32_t* const (&words)[kPanels], int64_t offset,
                                  Sums& sums) {
  __m512i signs[4];
  transpose(words, offset + 2 * kPanelRows, signs);
  unroll<2>([&](auto half) WALSH_INLINE {
    __m512i pointers[4];
    transpose(words, offset + half * kPanelRows, pointers);
    unroll<4>([&](auto v) WALSH_INLINE {
      const int vector = first + 4 * half + v;
      const __m512i index = half == 0 ? signs[v] : _mm512_srli_epi16(signs[v], 4);
      sums.add(_mm512_add_epi8(look_up(tables.products[vector], pointers[v]),
                               look_up(tables.signs[vector], index)));
    });
  });
}

// Adds sum * scale to y for the rows of one panel.
void add_to(const PanelMatrix& w, int64_t panel, int64_t group, __m512i sum, float factor,
            float* y) {
  const int64_t left = w.rows - panel * kPanelRows;
  const auto mask = static_cast<__mmask16>(left >= kPanelRows ? 0xffff : (1 << left) - 1);
  const uint16_t* halves =
      w.scales.data() + (panel * ceil_div(w.cols, w.group) + group) * kPanelRows;
  const __m512 scale =
      _mm512_mul_ps(_mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves))),
                    _mm512_set1_ps(w.product->unit));
  float* out = y + panel * kPanelRows;
  const __m512 total =
      _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, _mm512_set1_ps(factor)),
                      _mm512_maskz_loadu_ps(mask, out));
  _mm512_mask_storeu_ps(out, mask, total);
}

// Adds the products of columns [c, c + columns) of up to four panels from `panel` on.
void add_group(const PanelMatrix& w, const Tables& tables, int64_t panel, int64_t panels, int64_t c,
               int64_t columns, float x_scale, float* y) {
  const int64_t stride = panel_words(w, kProductWords);
  const uint32_t* words[kPanels];
  for (int64_t p = 0; p < kPanels; ++p)  // The last panel stands for a missing one.
    words[p] = w.codes.data() + (panel + std::min(p, panels - 1)) * stride +
               c / kUnitColumns * kProductWords * kPanelRows;
  // Prefetches the same columns of the next rows. They are too few for the hardware prefetcher to
  // detect.
  const int64_t ahead = panel + 2 * kPanels <= w.panels() ? kPanels * stride : 0;
  Sums sums;
  for (int64_t u = 0; u < columns / kUnitColumns; ++u) {
    const int64_t offset = u * kProductWords * kPanelRows;
    for (int p = 0; p < kPanels; ++p) {
      for (int line = 0; line < kProductWords; ++line)
        _mm_prefetch(reinterpret_cast<const char*>(words[p] + ahead + offset + line * kPanelRows),
                     _MM_HINT_T0);
    }
    add_unit(tables, static_cast<int>(u) * kUnitVectors, words, offset, sums);
  }
  const auto bias = static_cast<int>(columns / kProductValues) * 128;
  const __m512i even = _mm512_sub_epi16(sums.all, _mm512_slli_epi16(sums.odd, 8));
  const __m512i low = _mm512_set1_epi32(0xffff);
  const __m512i rows[kPanels] = {_mm512_and_si512(even, low), _mm512_srli_epi32(even, 16),
                                 _mm512_and_si512(sums.odd, low), _mm512_srli_epi32(sums.odd, 16)};
  for (int64_t p = 0; p < panels; ++p)
    add_to(w, panel + p, c / w.group, _mm512_sub_epi32(rows[p], _mm512_set1_epi32(bias)), x_scale,
           y);
}

struct Engine {
  using Tables = avx512vbmi::Tables;
  using Filler = TableFiller;
  static constexpr int64_t kPanels = avx512vbmi::kPanels;
  static constexpr auto add_group = &avx512vbmi::add_group;
};

}  // namespace

void matmul_lookup(const PanelMatmul& call) {
  lookup_products<Engine>(call);
}

}  // namespace walsh::avx512vbmi
