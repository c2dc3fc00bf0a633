// The int8 matmul on AVX2, 8 rows at a time. vpmaddubsw saturates unless its products are bounded,
// so it multiplies |w| by x with the sign of w: at most 2 * 127 * 127.
#include <immintrin.h>

#include <cstring>

#include "kernels/avx2/product_words.h"
#include "kernels/avx2/trellis_words.h"
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
  // row_of(i): the row of lane i.
  template <typename RowOf>
  void store(int64_t t, __m256 sum, const RowOf& row_of) const {
    float* out = y + t * ldy;
    alignas(32) float values[kLanes];
    _mm256_store_ps(values, sum);
    for (int i = 0; i < kLanes; ++i) {
      const int64_t row = row_of(i);
      if (row < w.rows) out[row] = accumulate ? out[row] + values[i] : values[i];
    }
  }
};

// What differs between kinds of weights: how codes are decoded, how columns are cut into groups,
// and how a group's scale enters.
template <int Bits>
class ScalarWeights {
 public:
  static constexpr int kUnitWords = Bits * kPanelRows;
  // Beyond so many vectors decoded columns are kept for all of them; 0: never, decoding is cheap.
  static constexpr int64_t kMostDirect = 0;

  explicit ScalarWeights(const PanelMatrix& w) : decoder_(w.code->levels_i8) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, int lane, const Emit& emit) const {
    decoder_.decode(words + lane, emit);
  }
  // Columns from c to the next flush of the integer sums.
  WALSH_INLINE static int64_t columns(const Call& call, int64_t c) {
    return std::min(call.step, call.w.cols - c);
  }
  WALSH_INLINE static __m256 scale(const Call& call, int64_t panel, int lane, int64_t c) {
    return _mm256_mul_ps(call.f16(call.w.scales, panel * call.w_groups + c / call.w.group, lane),
                         _mm256_set1_ps(call.w.code->unit));
  }
  static void store(const Call& call, int64_t panel, int lane, int64_t t, __m256 total) {
    call.store(t, total, [&](int i) { return panel * kPanelRows + lane + i; });
  }

 private:
  CodeDecoder<Bits, Bytes> decoder_;
};

template <class Steps>
class TrellisWeights {
 public:
  static constexpr int kUnitWords = Steps::kUnitWords;
  static constexpr int64_t kMostDirect = 4;

  explicit TrellisWeights(const PanelMatrix& w) : decoder_(*w.trellis) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, int lane, const Emit& emit) const {
    decoder_.decode(words, lane, emit);
  }
  WALSH_INLINE static int64_t columns(const Call& call, int64_t c) {
    return trellis_flush_columns(call.w, call.x, c);
  }
  static __m256 scale(const Call& call, int64_t panel, int lane, int64_t c) {
    const int64_t block = column_block(c, call.w.cols);
    if (!call.w.trellis->block_scales) return _mm256_set1_ps(call.w.col_factors.data()[block]);
    return call.f16(call.w.scales, panel * column_blocks(call.w.cols) + block, lane);
  }
  static void store(const Call& call, int64_t panel, int lane, int64_t t, __m256 total) {
    __m256 scale = _mm256_set1_ps(call.w.trellis->unit);
    if (!call.w.trellis->block_scales) {
      scale = _mm256_mul_ps(call.f16(call.w.scales, panel, lane), scale);
    }
    call.store(t, _mm256_mul_ps(total, scale),
               [&](int i) { return panel * kPanelRows + trellis_row(lane + i); });
  }

 private:
  TrellisDecoder<Steps, TrellisWords> decoder_;
};

class ProductWeights {
 public:
  static constexpr int kUnitWords = kProductWords * kPanelRows;
  static constexpr int64_t kMostDirect = 4;

  explicit ProductWeights(const PanelMatrix& w) : decoder_(w) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, int lane, const Emit& emit) const {
    decoder_.decode(words, lane, emit);
  }
  WALSH_INLINE static int64_t columns(const Call& call, int64_t c) {
    return std::min(call.step, call.w.cols - c);
  }
  WALSH_INLINE static __m256 scale(const Call& call, int64_t panel, int lane, int64_t c) {
    return _mm256_mul_ps(call.f16(call.w.scales, panel * call.w_groups + c / call.w.group, lane),
                         _mm256_set1_ps(call.w.product->unit));
  }
  static void store(const Call& call, int64_t panel, int lane, int64_t t, __m256 total) {
    call.store(t, total, [&](int i) { return panel * kPanelRows + lane + i; });
  }

 private:
  GatherProductDecoder<ProductWords> decoder_;
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
template <int Vectors, int Planes, class Weights>
void multiply_half(const Call& call, const Weights& weights, int64_t panel, int lane, int64_t v0) {
  const PanelMatrix& w = call.w;
  const uint32_t* words = w.codes.data() + panel * panel_units(w) * Weights::kUnitWords;
  const int8_t* q = call.x.q.data() + v0 * call.x.cols;
  const float* x_scales = call.x.scales.data() + v0 * call.x_groups;
  __m256 total[Vectors / Planes];
  unroll<Vectors / Planes>([&](auto t) WALSH_INLINE { total[t] = _mm256_setzero_ps(); });
  for (int64_t c = 0, columns; c < w.cols; c += columns) {
    columns = weights.columns(call, c);
    __m256i acc[Vectors];
    unroll<Vectors>([&](auto v) WALSH_INLINE { acc[v] = _mm256_setzero_si256(); });
    for (int64_t u = c; u < c + columns; u += kUnitColumns) {
      weights.decode(words, lane, [&](auto quad, __m256i levels) WALSH_INLINE {
        const __m256i magnitudes = _mm256_abs_epi8(levels);
        unroll<Vectors>([&](auto v) WALSH_INLINE {
          acc[v] = add_dot(acc[v], levels, magnitudes, q + v * call.x.cols + u + 4 * quad);
        });
      });
      words += Weights::kUnitWords;
    }
    const __m256 scale = weights.scale(call, panel, lane, c);
    unroll<Vectors>([&](auto v) WALSH_INLINE {
      const float x_scale = x_scales[v * call.x_groups + c / call.x.group];
      __m256& t = total[v / Planes];
      t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[v]), _mm256_mul_ps(scale, _mm256_set1_ps(x_scale)),
                          t);
      if (w.offset_group) t = add_offset(call, panel, lane, v0 + v, c, columns, x_scale, t);
    });
  }
  unroll<Vectors / Planes>(
      [&](auto t) WALSH_INLINE { weights.store(call, panel, lane, v0 / Planes + t, total[t]); });
}

template <int Vectors, int Planes, class Weights>
void multiply_panel(const Call& call, const Weights& weights, int64_t panel, int64_t v0) {
  for (int lane = 0; lane < kPanelRows; lane += kLanes)
    multiply_half<Vectors, Planes>(call, weights, panel, lane, v0);
}

// totals[token] += decoded columns [c, c + columns) of 8 rows times vectors v0 .. v0 + Vectors - 1.
template <int Vectors, int Planes>
void add_columns(const Call& call, const __m256i* levels, int64_t c, int64_t columns, __m256 scale,
                 int64_t v0, __m256* totals) {
  const int8_t* q = call.x.q.data() + v0 * call.x.cols + c;
  __m256i acc[Vectors];
  unroll<Vectors>([&](auto v) WALSH_INLINE { acc[v] = _mm256_setzero_si256(); });
  for (int64_t i = 0; i < columns; i += kQuadColumns) {
    const __m256i weights = levels[i / kQuadColumns];
    const __m256i magnitudes = _mm256_abs_epi8(weights);
    unroll<Vectors>([&](auto v) WALSH_INLINE {
      acc[v] = add_dot(acc[v], weights, magnitudes, q + v * call.x.cols + i);
    });
  }
  unroll<Vectors>([&](auto v) WALSH_INLINE {
    const float x_scale = call.x.scales.data()[(v0 + v) * call.x_groups + c / call.x.group];
    __m256& t = totals[v / Planes];
    t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[v]), _mm256_mul_ps(scale, _mm256_set1_ps(x_scale)),
                        t);
  });
}

// Rows lane .. lane + 7 of a panel times `vectors` vectors from v0 on, at most kBlock, for weights
// without offsets: columns are decoded once per flush and kept in first-level cache.
constexpr int kBlock = 64;
template <int Planes, class Weights>
void multiply_decoded(const Call& call, const Weights& weights, int64_t panel, int lane, int64_t v0,
                      int64_t vectors) {
  const uint32_t* words = call.w.codes.data() + panel * panel_units(call.w) * Weights::kUnitWords;
  __m256 totals[kBlock / Planes];
  std::fill_n(totals, vectors / Planes, _mm256_setzero_ps());
  for (int64_t c = 0, columns; c < call.w.cols; c += columns) {
    columns = weights.columns(call, c);
    __m256i levels[kF32Block / kQuadColumns];
    for (int64_t u = 0; u < columns; u += kUnitColumns) {
      weights.decode(words, lane, [&](auto quad, __m256i decoded) WALSH_INLINE {
        levels[u / kQuadColumns + quad] = decoded;
      });
      words += Weights::kUnitWords;
    }
    const __m256 scale = weights.scale(call, panel, lane, c);
    int64_t v = 0;
    for (; vectors - v >= 4; v += 4)
      add_columns<4, Planes>(call, levels, c, columns, scale, v0 + v, totals + v / Planes);
    for (; vectors - v >= Planes; v += Planes)
      add_columns<Planes, Planes>(call, levels, c, columns, scale, v0 + v, totals + v / Planes);
  }
  for (int64_t t = 0; t < vectors / Planes; ++t)
    weights.store(call, panel, lane, v0 / Planes + t, totals[t]);
}

template <int Planes, class Weights>
void multiply_blocks(const Call& call, const Weights& weights, int64_t vectors, int64_t panel_begin,
                     int64_t panel_end) {
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    for (int lane = 0; lane < kPanelRows; lane += kLanes) {
      for (int64_t v = 0; v < vectors; v += kBlock) {
        multiply_decoded<Planes>(call, weights, panel, lane, v,
                                 std::min<int64_t>(kBlock, vectors - v));
      }
    }
  }
}

template <int Planes, class Weights>
void multiply(const Call& call, const Weights& weights, int64_t m, int64_t panel_begin,
              int64_t panel_end) {
  const int64_t vectors = m * Planes;
  if constexpr (Weights::kMostDirect > 0) {
    if (vectors > Weights::kMostDirect) {
      return multiply_blocks<Planes>(call, weights, vectors, panel_begin, panel_end);
    }
  }
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    int64_t v = 0;
    for (; vectors - v >= 4; v += 4)
      multiply_panel<4, Planes>(call, weights, panel, v);
    for (; vectors - v >= 2; v += 2)
      multiply_panel<2, Planes>(call, weights, panel, v);
    if constexpr (Planes == 1) {
      if (v < vectors) multiply_panel<1, 1>(call, weights, panel, v);
    }
  }
}

template <class Weights>
void multiply_planes(const Call& call, int64_t m, int64_t panel_begin, int64_t panel_end) {
  const Weights weights(call.w);
  if (call.x.planes == 2) return multiply<2>(call, weights, m, panel_begin, panel_end);
  multiply<1>(call, weights, m, panel_begin, panel_end);
}

}  // namespace

void matmul_i8(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y, int64_t ldy,
               int64_t panel_begin, int64_t panel_end, bool accumulate) {
  const int64_t z_groups = w.offset_group ? ceil_div(w.cols, w.offset_group) : 0;
  const Call call{
      w,        x,         y, ldy, accumulate, flush_columns(w, x), ceil_div(w.cols, w.group),
      z_groups, x.groups()};
  if (w.product) return multiply_planes<ProductWeights>(call, m, panel_begin, panel_end);
  if (w.trellis) {
    with_trellis_steps(*w.trellis, [&](auto steps) {
      multiply_planes<TrellisWeights<decltype(steps)>>(call, m, panel_begin, panel_end);
    });
    return;
  }
  switch (w.code->bits) {
    case 2:
      return multiply_planes<ScalarWeights<2>>(call, m, panel_begin, panel_end);
    case 3:
      return multiply_planes<ScalarWeights<3>>(call, m, panel_begin, panel_end);
    case 4:
      return multiply_planes<ScalarWeights<4>>(call, m, panel_begin, panel_end);
    default:
      return multiply_planes<ScalarWeights<8>>(call, m, panel_begin, panel_end);
  }
}

}  // namespace walsh::avx2
