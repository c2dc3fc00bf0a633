// The int8 matmul on AVX2, 8 rows at a time. vpmaddubsw saturates unless its products are bounded,
// so it multiplies |w| by x with the sign of w: at most 2 * 127 * 127.
#include <immintrin.h>

#include <cstring>

#include "kernels/isa_tables.h"
#include "kernels/panel_layout.h"
#include "kernels/simd/code_decoder.h"

namespace walsh::avx2 {

namespace {

using namespace detail;

constexpr int kLanes = 8;

class ShuffleTable {
 public:
  explicit ShuffleTable(const uint8_t* table)
      : table_(
            _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)))) {}

  WALSH_INLINE __m256i operator()(__m256i index) const {
    return _mm256_shuffle_epi8(table_, _mm256_and_si256(index, _mm256_set1_epi8(0x0f)));
  }

 private:
  __m256i table_;
};

struct Bytes {
  using Ints = __m256i;
  using Table = ShuffleTable;
  static constexpr int kBias = 0;

  WALSH_INLINE static Ints load(const uint32_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  template <int Bits>
  WALSH_INLINE static Ints shift_right(Ints a) {
    return _mm256_srli_epi16(a, Bits);
  }
  WALSH_INLINE static Ints select(int mask, Ints a, Ints b) {
    const Ints m = _mm256_set1_epi8(static_cast<char>(mask));
    return _mm256_or_si256(_mm256_and_si256(m, a), _mm256_andnot_si256(m, b));
  }
  WALSH_INLINE static Ints plain(Ints bytes) { return bytes; }
};

struct Call {
  const PanelMatrix& w;
  const ActivationsI8& x;
  float* y;
  int64_t ldy;
  bool accumulate;
  int64_t step, w_groups, z_groups, x_groups;

  __m256 f16(const AlignedArray<uint16_t>& values, int64_t group, int lane) const {
    const uint16_t* p = values.data() + group * kPanelRows + lane;
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  void store(int64_t row, int64_t t, __m256 sum) const {
    float* out = y + t * ldy + row;
    alignas(32) float values[kLanes];
    _mm256_store_ps(values, sum);
    const int64_t rows = std::min<int64_t>(kLanes, w.rows - row);
    for (int64_t i = 0; i < rows; ++i)
      out[i] = accumulate ? out[i] + values[i] : values[i];
  }
};

WALSH_INLINE inline __m256i add_dot(__m256i sum, __m256i weights, __m256i magnitudes,
                                    const int8_t* quad) {
  int32_t v;
  std::memcpy(&v, quad, 4);
  const __m256i x = _mm256_sign_epi8(_mm256_set1_epi32(v), weights);
  const __m256i pairs = _mm256_maddubs_epi16(magnitudes, x);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// total += offset * sum(q) * x_scale for the columns of one step.
__m256 add_offset(const Call& call, int64_t panel, int lane, int64_t vector, int64_t c,
                  int64_t columns, float x_scale, __m256 total) {
  const int32_t* sums = call.x.sums.data() + (vector * call.x.cols + c) / kUnitColumns;
  int32_t sum = 0;
  for (int64_t i = 0; i < columns / kUnitColumns; ++i)
    sum += sums[i];
  const int64_t group = panel * call.z_groups + c / call.w.offset_group;
  return _mm256_fmadd_ps(call.f16(call.w.offsets, group, lane),
                         _mm256_set1_ps(static_cast<float>(sum) * x_scale), total);
}

// Rows lane .. lane + 7 of a panel times vectors v0 .. v0 + Vectors - 1.
template <int Bits, int Vectors, int Planes>
void multiply_half(const Call& call, const CodeDecoder<Bits, Bytes>& decoder, int64_t panel,
                   int lane, int64_t v0) {
  const PanelMatrix& w = call.w;
  const uint32_t* words = w.codes.data() + panel * panel_words(w, Bits) + lane;
  const int8_t* q = call.x.q.data() + v0 * call.x.cols;
  const float* x_scales = call.x.scales.data() + v0 * call.x_groups;
  __m256 total[Vectors / Planes];
  unroll<Vectors / Planes>([&](auto t) WALSH_INLINE { total[t] = _mm256_setzero_ps(); });
  for (int64_t c = 0; c < w.cols; c += call.step) {
    const int64_t columns = std::min(call.step, w.cols - c);
    __m256i acc[Vectors];
    unroll<Vectors>([&](auto v) WALSH_INLINE { acc[v] = _mm256_setzero_si256(); });
    for (int64_t u = c; u < c + columns; u += kUnitColumns) {
      decoder.decode(words, [&](auto quad, __m256i weights) WALSH_INLINE {
        const __m256i magnitudes = _mm256_abs_epi8(weights);
        unroll<Vectors>([&](auto v) WALSH_INLINE {
          acc[v] = add_dot(acc[v], weights, magnitudes, q + v * call.x.cols + u + 4 * quad);
        });
      });
      words += Bits * kPanelRows;
    }
    const __m256 scale =
        _mm256_mul_ps(call.f16(w.scales, panel * call.w_groups + c / w.group, lane),
                      _mm256_set1_ps(w.code->unit));
    unroll<Vectors>([&](auto v) WALSH_INLINE {
      const float x_scale = x_scales[v * call.x_groups + c / call.x.group];
      __m256& t = total[v / Planes];
      t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[v]), _mm256_mul_ps(scale, _mm256_set1_ps(x_scale)),
                          t);
      if (w.offset_group) t = add_offset(call, panel, lane, v0 + v, c, columns, x_scale, t);
    });
  }
  unroll<Vectors / Planes>([&](auto t) WALSH_INLINE {
    call.store(panel * kPanelRows + lane, v0 / Planes + t, total[t]);
  });
}

template <int Bits, int Vectors, int Planes>
void multiply_panel(const Call& call, const CodeDecoder<Bits, Bytes>& decoder, int64_t panel,
                    int64_t v0) {
  for (int lane = 0; lane < kPanelRows; lane += kLanes)
    multiply_half<Bits, Vectors, Planes>(call, decoder, panel, lane, v0);
}

template <int Bits, int Planes>
void multiply(const Call& call, int64_t m, int64_t panel_begin, int64_t panel_end) {
  const CodeDecoder<Bits, Bytes> decoder(call.w.code->levels_i8);
  const int64_t vectors = m * Planes;
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    int64_t v = 0;
    for (; vectors - v >= 4; v += 4)
      multiply_panel<Bits, 4, Planes>(call, decoder, panel, v);
    for (; vectors - v >= 2; v += 2)
      multiply_panel<Bits, 2, Planes>(call, decoder, panel, v);
    if constexpr (Planes == 1) {
      if (v < vectors) multiply_panel<Bits, 1, 1>(call, decoder, panel, v);
    }
  }
}

template <int Bits>
void multiply_planes(const Call& call, int64_t m, int64_t panel_begin, int64_t panel_end) {
  if (call.x.planes == 2) return multiply<Bits, 2>(call, m, panel_begin, panel_end);
  multiply<Bits, 1>(call, m, panel_begin, panel_end);
}

}  // namespace

void matmul_i8(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y, int64_t ldy,
               int64_t panel_begin, int64_t panel_end, bool accumulate) {
  const int64_t z_groups = w.offset_group ? ceil_div(w.cols, w.offset_group) : 0;
  const Call call{
      w,        x,         y, ldy, accumulate, flush_columns(w, x), ceil_div(w.cols, w.group),
      z_groups, x.groups()};
  switch (w.code->bits) {
    case 2:
      return multiply_planes<2>(call, m, panel_begin, panel_end);
    case 3:
      return multiply_planes<3>(call, m, panel_begin, panel_end);
    case 4:
      return multiply_planes<4>(call, m, panel_begin, panel_end);
    default:
      return multiply_planes<8>(call, m, panel_begin, panel_end);
  }
}

}  // namespace walsh::avx2
