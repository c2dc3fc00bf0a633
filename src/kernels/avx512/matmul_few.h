// Multiplies int8 matrices with few vectors on VNNI. Codes are decoded in registers and reused for
// each vector. A 32-bit lane is one row, and activations are broadcast four columns at a time, so
// there are no horizontal sums.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/avx512/matmul_weights.h"
#include "kernels/isa_tables.h"

namespace walsh::avx512 {

using namespace detail;

namespace {  // Each instruction set that this is compiled for has a copy.

WALSH_INLINE inline __m512i broadcast_quad(const int8_t* quad) {
  int32_t v;
  std::memcpy(&v, quad, 4);
  return _mm512_set1_epi32(v);
}

class FewVectors {
 public:
  // Returns whether run() takes the call. For that, scales must be for whole units of columns.
  static bool fit(const VnniCall& call) { return few(call) && call.step >= kUnitColumns; }

  // Returns whether run_codes() takes the call. Scales may also be for half a unit of columns of
  // scalar codes, with one plane of activations.
  static bool take(const VnniCall& call) {
    return fit(call) || (few(call) && call.x.planes == 1 && !call.w.product &&
                         scalar::has_half_units(call.w.code->bits));
  }

  template <class Weights>
  static void run(const VnniCall& call, const Weights& weights) {
    if (call.x.planes == 2) return run_panels<2, 1>(call, weights);
    run_panels<1, 1>(call, weights);
  }

  // Multiplies scalar codes, which `Table` looks up, or product codes.
  template <class Table, class ProductDecoder>
  static void run_codes(const VnniCall& call) {
    if (call.w.product) return run(call, ProductWeights<ProductDecoder>(call.w));
    scalar::with_cpu_width(call.w.code->bits, [&](auto bits) {
      const ScalarWeights<bits, Table, kSlabBias> weights(call.w);
      if (call.step >= kUnitColumns) return run(call, weights);
      if constexpr (scalar::has_half_units(bits)) run_panels<1, 2>(call, weights);
    });
  }

 private:
  static bool few(const VnniCall& call) { return call.m * call.x.planes <= kFewVectors; }

  // Codes are read once; prefetching 4 KiB ahead keeps memory busy across panels. The prefetch
  // never passes the end, because prefetching an unmapped page walks the page table every time.
  static constexpr int64_t kPrefetchWords = 1024;

  // Multiplies a panel with `Vectors` vectors from `v0` on, decoding codes in registers. `Parts` is
  // 2 if scales are per half unit, else 1.
  template <int Vectors, int Planes, int Parts, class Weights>
  static void multiply_panel(const VnniCall& call, const Weights& shared, int64_t panel,
                             int64_t v0) {
    // If there are few vectors, several independent sums per vector hide the latency of vpdpbusd.
    constexpr int kChains = (Vectors <= 2 ? 4 : Vectors <= 4 ? 2 : Parts) / Parts;
    const Weights weights = shared;  // The compiler keeps constants of a copy in registers.
    const PanelMatrix& w = call.w;
    constexpr int kUnitWords = Weights::kUnitWords;
    const int64_t ldq = call.x.stride;
    const uint32_t* words = w.codes.data() + panel * panel_units(w) * kUnitWords;
    const uint32_t* last_unit = w.codes.end() - kUnitWords;
    const int8_t* q = call.q(v0);
    __m512 total[Vectors / Planes];
    unroll<Vectors / Planes>([&](auto t) WALSH_INLINE { total[t] = _mm512_setzero_ps(); });
    __m512 scale = _mm512_setzero_ps();
    int64_t scale_end = 0, group = 0;
    const auto load_scale = [&](int64_t c) WALSH_INLINE {
      if (c != scale_end) return;
      scale = weights.scale(call, panel, group);
      weights.prefetch_scale(call, panel, group++);
      scale_end += weights.group_columns(call, c);
    };
    for (int64_t c = 0, columns; c < w.cols; c += columns) {
      if constexpr (Parts == 1) load_scale(c);
      columns = Parts == 1 ? weights.columns(call, c) : kUnitColumns;
      __m512i acc[Parts][Vectors][kChains];
      int32_t sums[Parts][Vectors];
      unroll<Parts * Vectors>([&](auto i) WALSH_INLINE {
        constexpr int kPart = i % Parts, kVector = i / Parts;
        const int64_t part_columns = columns / Parts;
        sums[kPart][kVector] = call.x_sum(v0 + kVector, c + kPart * part_columns, part_columns);
        __m512i(&a)[kChains] = acc[kPart][kVector];
        a[0] = _mm512_set1_epi32(sums[kPart][kVector] * -Weights::kBias);
        unroll<kChains - 1>([&](auto chain)
                                WALSH_INLINE { a[chain + 1] = _mm512_setzero_si512(); });
      });
      for (int64_t u = c; u < c + columns; u += kUnitColumns) {
        const uint32_t* ahead = std::min(words + kPrefetchWords, last_unit);
        unroll<ceil_div(kUnitWords, kPanelRows)>([&](auto line) WALSH_INLINE {
          _mm_prefetch(reinterpret_cast<const char*>(ahead + kPanelRows * line), _MM_HINT_T0);
        });
        weights.decode(words, [&](auto quad, __m512i bytes) WALSH_INLINE {
          unroll<Vectors>([&](auto v) WALSH_INLINE {
            __m512i& a = acc[quad * Parts / 8][v][quad % kChains];
            a = _mm512_dpbusd_epi32(a, bytes, broadcast_quad(q + v * ldq + u + 4 * quad));
          });
        });
        words += kUnitWords;
      }
      unroll<Parts>([&](auto part) WALSH_INLINE {
        const int64_t from = c + part * columns / Parts;
        if constexpr (Parts == 2) load_scale(from);
        const auto sum_of = [&](auto v) WALSH_INLINE {
          const __m512i(&a)[kChains] = acc[part][v];
          __m512i sum = a[0];
          unroll<kChains - 1>([&](auto i) WALSH_INLINE { sum = _mm512_add_epi32(sum, a[i + 1]); });
          return sum;
        };
        unroll<Vectors / Planes>([&](auto t) WALSH_INLINE {
          constexpr int kFirst = t * Planes, kLast = kFirst + Planes - 1;
          __m512i sum = sum_of(std::integral_constant<int, kFirst>());
          int32_t x_sum = sums[part][kFirst];
          if constexpr (Planes == 2) {
            sum = join_planes(sum, sum_of(std::integral_constant<int, kLast>()));
            x_sum = x_sum * kPlaneRatio + sums[part][kLast];
          }
          const float x_scale = call.x_scale(v0 + kLast, from);
          total[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum),
                                     _mm512_mul_ps(scale, _mm512_set1_ps(x_scale)), total[t]);
          if (w.offset_group) {
            total[t] =
                _mm512_fmadd_ps(call.offset(panel, from / w.offset_group),
                                _mm512_set1_ps(static_cast<float>(x_sum) * x_scale), total[t]);
          }
        });
      });
    }
    unroll<Vectors / Planes>([&](auto t) WALSH_INLINE {
      call.store(panel, v0 / Planes + t, weights.finish(call, panel, total[t]));
    });
  }

  template <int Planes, int Parts, class Weights>
  static void run_panels(const VnniCall& call, const Weights& weights) {
    const int64_t vectors = call.m * Planes;
    for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel) {
      int64_t v = 0;
      for (; vectors - v >= 8; v += 8)
        multiply_panel<8, Planes, Parts>(call, weights, panel, v);
      if (vectors - v >= 4) {
        multiply_panel<4, Planes, Parts>(call, weights, panel, v);
        v += 4;
      }
      if (vectors - v >= 2) {
        multiply_panel<2, Planes, Parts>(call, weights, panel, v);
        v += 2;
      }
      if constexpr (Planes == 1) {
        if (vectors > v) multiply_panel<1, 1, Parts>(call, weights, panel, v);
      }
    }
  }
};

}  // namespace
}  // namespace walsh::avx512
