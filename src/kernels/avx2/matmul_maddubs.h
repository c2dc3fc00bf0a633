// Multiplies int8 matrices on AVX2, 8 rows at a time, for all kinds of weights. vpmaddubsw
// saturates unless its products are bounded, so it multiplies |w| by x with the sign of w, which
// gives at most 2 * 127 * 127.
//
// A Weights class says how codes are decoded, how columns are grouped, and how a group's scale is
// applied. With more than kMostDirect vectors, decoded columns are stored and used for all vectors.
// If kMostDirect is 0, they are never stored, because decoding is cheap.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "base/unroll.h"
#include "kernels/isa_tables.h"
#include "kernels/panel_layout.h"

namespace walsh::avx2 {

detail::MatmulI8 matmul_trellis, matmul_linear;  // matmul_i8 calls these.

namespace {  // Each file compiles a copy for this instruction set.

using namespace detail;

constexpr int kLanes = 8;

struct Call : PanelMatmul {
  int64_t step, w_groups, z_groups, x_groups;
  // These are log2 of the group sizes; w_shift is -1 if a row's group is no power of two.
  int w_shift, x_shift;
  float unit;

  Call(const PanelMatmul& call)
      : PanelMatmul(call),
        step(flush_columns(w, x)),
        w_groups(ceil_div(w.cols, w.group)),
        z_groups(w.offset_group ? ceil_div(w.cols, w.offset_group) : 0),
        x_groups(x.groups()),
        w_shift(std::has_single_bit(static_cast<uint64_t>(w.group))
                    ? std::countr_zero(static_cast<uint64_t>(w.group))
                    : -1),
        x_shift(std::countr_zero(static_cast<unsigned>(x.group))),
        unit(level_unit(w)) {}

  // These return the group of a column. Divisions would take longer than the products of a small
  // group.
  WALSH_INLINE int64_t w_group(int64_t c) const {
    return w_shift >= 0 ? c >> w_shift : c / w.group;
  }
  WALSH_INLINE int64_t x_group(int64_t c) const { return c >> x_shift; }

  __m256 f16(const AlignedArray<uint16_t>& values, int64_t group, int lane) const {
    const uint16_t* p = values.data() + group * kPanelRows + lane;
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // Stores the eight sums for vector t; row_of(i) is the row of lane i.
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

WALSH_INLINE inline __m256i add_dot(__m256i sum, __m256i weights, __m256i magnitudes,
                                    const int8_t* quad) {
  int32_t v;
  std::memcpy(&v, quad, 4);
  const __m256i x = _mm256_sign_epi8(_mm256_set1_epi32(v), weights);
  const __m256i pairs = _mm256_maddubs_epi16(magnitudes, x);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// Returns the integer sums of token t, which has the vectors [t * Planes, (t + 1) * Planes).
template <int Planes>
WALSH_INLINE inline __m256i join_planes(const __m256i* sums, int t) {
  if constexpr (Planes == 1) return sums[t];
  const __m256i first = _mm256_mullo_epi32(sums[2 * t], _mm256_set1_epi32(kPlaneRatio));
  return _mm256_add_epi32(first, sums[2 * t + 1]);
}

// Adds offset * sum(q) * x_scale to the total of a token, for the columns of one step.
template <int Planes>
__m256 add_offset(const Call& call, int64_t panel, int lane, int64_t token, int64_t c,
                  int64_t columns, float x_scale, __m256 total) {
  int32_t sum = 0;
  for (int64_t v = token * Planes; v < (token + 1) * Planes; ++v) {
    const int32_t* sums = call.x.sums.data() + (v * call.x.cols + c) / kUnitColumns;
    sum = std::accumulate(sums, sums + columns / kUnitColumns, sum * kPlaneRatio);
  }
  const int64_t group = panel * call.z_groups + c / call.w.offset_group;
  return _mm256_fmadd_ps(call.f16(call.w.offsets, group, lane),
                         _mm256_set1_ps(static_cast<float>(sum) * x_scale), total);
}

// Multiplies rows lane .. lane + 7 of a panel with vectors v0 .. v0 + Vectors - 1.
template <int Vectors, int Planes, class Weights>
void multiply_half(const Call& call, const Weights& weights, int64_t panel, int lane, int64_t v0) {
  const PanelMatrix& w = call.w;
  const uint32_t* words = w.codes.data() + panel * panel_units(w) * Weights::kUnitWords;
  const int8_t* q = call.x.row(v0);
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
          acc[v] = add_dot(acc[v], levels, magnitudes, q + v * call.x.stride + u + 4 * quad);
        });
      });
      words += Weights::kUnitWords;
    }
    const __m256 scale = weights.scale(call, panel, lane, c);
    unroll<Vectors / Planes>([&](auto t) WALSH_INLINE {
      const float x_scale = x_scales[(t * Planes + Planes - 1) * call.x_groups + call.x_group(c)];
      total[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(join_planes<Planes>(acc, t)),
                                 _mm256_mul_ps(scale, _mm256_set1_ps(x_scale)), total[t]);
      if (w.offset_group) {
        total[t] =
            add_offset<Planes>(call, panel, lane, v0 / Planes + t, c, columns, x_scale, total[t]);
      }
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

// Adds the products of decoded columns [c, c + columns) of 8 rows with vectors v0 .. v0 + Vectors -
// 1.
template <int Vectors, int Planes>
void add_columns(const Call& call, const __m256i* levels, int64_t c, int64_t columns, __m256 scale,
                 int64_t v0, __m256* totals) {
  const int8_t* q = call.x.row(v0) + c;
  __m256i acc[Vectors];
  unroll<Vectors>([&](auto v) WALSH_INLINE { acc[v] = _mm256_setzero_si256(); });
  for (int64_t i = 0; i < columns; i += kQuadColumns) {
    const __m256i weights = levels[i / kQuadColumns];
    const __m256i magnitudes = _mm256_abs_epi8(weights);
    unroll<Vectors>([&](auto v) WALSH_INLINE {
      acc[v] = add_dot(acc[v], weights, magnitudes, q + v * call.x.stride + i);
    });
  }
  const float* x_scales = call.x.scales.data() + v0 * call.x_groups + call.x_group(c);
  unroll<Vectors / Planes>([&](auto t) WALSH_INLINE {
    const float x_scale = x_scales[(t * Planes + Planes - 1) * call.x_groups];
    totals[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(join_planes<Planes>(acc, t)),
                                _mm256_mul_ps(scale, _mm256_set1_ps(x_scale)), totals[t]);
  });
}

// Decodes `columns` columns of 8 rows. It is not inlined, so that each decoder is compiled once;
// compiling decoders takes most of the time for this code.
template <class Weights>
__attribute__((noinline)) void decode_columns(const Weights& weights, const uint32_t* words,
                                              int lane, int64_t columns, __m256i* levels) {
  for (int64_t u = 0; u < columns; u += kUnitColumns) {
    weights.decode(words, lane, [&](auto quad, __m256i decoded) WALSH_INLINE {
      levels[u / kQuadColumns + quad] = decoded;
    });
    words += Weights::kUnitWords;
  }
}

// Multiplies rows lane .. lane + 7 of a panel with `vectors` vectors from v0 on, at most kBlock,
// for weights without offsets. Columns are decoded once per flush and kept in the first-level
// cache.
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
    decode_columns(weights, words, lane, columns, levels);
    words += columns / kUnitColumns * Weights::kUnitWords;
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
void multiply_blocks(const Call& call, const Weights& weights, int64_t vectors) {
  for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel) {
    for (int lane = 0; lane < kPanelRows; lane += kLanes) {
      for (int64_t v = 0; v < vectors; v += kBlock) {
        multiply_decoded<Planes>(call, weights, panel, lane, v,
                                 std::min<int64_t>(kBlock, vectors - v));
      }
    }
  }
}

template <int Planes, class Weights>
void multiply(const Call& call, const Weights& weights) {
  const int64_t vectors = call.m * Planes;
  if constexpr (Weights::kMostDirect > 0) {
    if (vectors > Weights::kMostDirect) return multiply_blocks<Planes>(call, weights, vectors);
  }
  for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel) {
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
void multiply_planes(const Call& call) {
  const Weights weights(call.w);
  if (call.x.planes == 2) return multiply<2>(call, weights);
  multiply<1>(call, weights);
}

}  // namespace

}  // namespace walsh::avx2
