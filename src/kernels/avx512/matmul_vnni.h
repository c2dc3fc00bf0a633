// The int8 matmul on VNNI and on tiles (AMX). A 32-bit lane is one row, and activations are
// broadcast four columns at a time, so there are no horizontal sums. For few vectors, codes are
// decoded in registers and reused for each vector. For many, a slab of two panels is decoded once
// into the first-level cache, and a product blocked in registers or in AMX tiles runs over it.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/avx512/matmul_weights.h"
#include "kernels/avx512/tile_sums.h"

namespace walsh::avx512 {

using namespace detail;

namespace {  // one copy for each instruction set that it is compiled for

// Tiles is the matrix unit that sums the products of 16 vectors and more, or NoTiles.
template <class Tiles>
class IntegerMatmul {
 public:
  using Call = VnniCall;

  // `Table` looks up scalar codes.
  template <class Table>
  static void run_scalar(const Call& call) {
    scalar::with_cpu_width(call.w.code->bits,
                           [&](auto bits) { run_with(call, ScalarWeights<bits, Table>(call.w)); });
  }

  template <class Decoder>
  static void run_product(const Call& call) {
    run_with(call, ProductWeights<Decoder>(call.w));
  }

  // Decoder<steps> decodes trellis codes of these steps. Steps: those that this is compiled for,
  // all if none are given.
  template <template <class> class Decoder, typename... Steps>
  static void run_trellis(const Call& call) {
    const auto run = [&](auto steps) {
      run_with(call, TrellisWeights<Decoder<decltype(steps)>>(call.w));
    };
    if constexpr (sizeof...(Steps) == 0) {
      with_trellis_steps(*call.w.trellis, run);
    } else {
      with_steps_among<Steps...>(*call.w.trellis, run);
    }
  }

 private:
  WALSH_INLINE static __m512i broadcast(const int8_t* quad) {
    int32_t v;
    std::memcpy(&v, quad, 4);
    return _mm512_set1_epi32(v);
  }

  // ---- few vectors ----

  static constexpr int kMostDirect = 8;
  // Codes are read once; prefetching 4 KiB ahead keeps memory busy across panels. The prefetch
  // never passes the end, because prefetching an unmapped page walks the page table every time.
  static constexpr int64_t kPrefetchWords = 1024;

  // Multiplies a panel with `Vectors` vectors from `v0`; codes are decoded in registers.
  template <int Vectors, int Planes, class Weights>
  static void multiply_panel(const Call& call, const Weights& weights, int64_t panel, int64_t v0) {
    // With few vectors, several independent sums per vector hide the latency of vpdpbusd.
    constexpr int kChains = Vectors <= 2 ? 4 : Vectors <= 4 ? 2 : 1;
    const PanelMatrix& w = call.w;
    constexpr int kUnitWords = Weights::kUnitWords;
    const int64_t ldq = call.x.cols;
    const uint32_t* words = w.codes.data() + panel * panel_units(w) * kUnitWords;
    const uint32_t* last_unit = w.codes.end() - kUnitWords;
    const int8_t* q = call.q(v0);
    __m512 total[Vectors / Planes];
    unroll<Vectors / Planes>([&](auto t) WALSH_INLINE { total[t] = _mm512_setzero_ps(); });
    __m512 scale = _mm512_setzero_ps();
    int64_t scale_end = 0, group = 0;
    for (int64_t c = 0, columns; c < w.cols; c += columns) {
      if (c == scale_end) {
        scale = weights.scale(call, panel, group);
        weights.prefetch_scale(call, panel, group++);
        scale_end += weights.group_columns(call, c);
      }
      columns = weights.columns(call, c);
      __m512i acc[Vectors][kChains];
      int32_t sums[Vectors];
      unroll<Vectors>([&](auto v) WALSH_INLINE {
        sums[v] = call.x_sum(v0 + v, c, columns);
        acc[v][0] = _mm512_set1_epi32(sums[v] * -Weights::kBias);
        unroll<kChains - 1>([&](auto i) WALSH_INLINE { acc[v][i + 1] = _mm512_setzero_si512(); });
      });
      for (int64_t u = c; u < c + columns; u += kUnitColumns) {
        const uint32_t* ahead = std::min(words + kPrefetchWords, last_unit);
        unroll<ceil_div(kUnitWords, kPanelRows)>([&](auto line) WALSH_INLINE {
          _mm_prefetch(reinterpret_cast<const char*>(ahead + kPanelRows * line), _MM_HINT_T0);
        });
        weights.decode(words, [&](auto quad, __m512i bytes) WALSH_INLINE {
          unroll<Vectors>([&](auto v) WALSH_INLINE {
            __m512i& a = acc[v][quad % kChains];
            a = _mm512_dpbusd_epi32(a, bytes, broadcast(q + v * ldq + u + 4 * quad));
          });
        });
        words += kUnitWords;
      }
      unroll<Vectors>([&](auto v) WALSH_INLINE {
        __m512i sum = acc[v][0];
        unroll<kChains - 1>([&](auto i)
                                WALSH_INLINE { sum = _mm512_add_epi32(sum, acc[v][i + 1]); });
        const float x_scale = call.x_scale(v0 + v, c);
        __m512& t = total[v / Planes];
        t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, _mm512_set1_ps(x_scale)),
                            t);
        if (w.offset_group) {
          t = _mm512_fmadd_ps(call.offset(panel, c / w.offset_group),
                              _mm512_set1_ps(static_cast<float>(sums[v]) * x_scale), t);
        }
      });
    }
    unroll<Vectors / Planes>([&](auto t) WALSH_INLINE {
      call.store(panel, v0 / Planes + t, weights.finish(call, panel, total[t]));
    });
  }

  template <int Planes, class Weights>
  static void run_direct(const Call& call, const Weights& weights) {
    const int64_t vectors = call.m * Planes;
    for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel) {
      int64_t v = 0;
      for (; vectors - v >= 8; v += 8)
        multiply_panel<8, Planes>(call, weights, panel, v);
      if (vectors - v >= 4) {
        multiply_panel<4, Planes>(call, weights, panel, v);
        v += 4;
      }
      if (vectors - v >= 2) {
        multiply_panel<2, Planes>(call, weights, panel, v);
        v += 2;
      }
      if constexpr (Planes == 1) {
        if (vectors > v) multiply_panel<1, 1>(call, weights, panel, v);
      }
    }
  }

  // ---- many vectors ----

  static constexpr int64_t kSlabColumns = 512;
  static constexpr int kTile = 12;  // vectors whose sums stay in registers
  // Vectors per pass over the codes.
  static constexpr int kBlock = Tiles::kPresent ? 8 * kMostTileVectors : 16 * kTile;

  static constexpr int kSlabPanels = 2;

  // Decoded columns [begin, end) of up to kSlabPanels panels: bytes[quad][panel][row][4].
  struct Slab {
    const Call& call;
    int64_t panel, begin, end;
    const uint8_t* bytes;
  };

  // sums[vector][panel][row] = products over `columns` columns with `Vectors` vectors. Not inlined,
  // so that nothing else competes for registers.
  template <int Panels, int Vectors>
  __attribute__((noinline)) static void sum_columns(const uint8_t* bytes, const int8_t* q,
                                                    int64_t ldq, int64_t columns, int32_t* sums) {
    __m512i acc[Vectors][Panels];
    unroll<Vectors>([&](auto v) WALSH_INLINE {
      unroll<Panels>([&](auto p) WALSH_INLINE { acc[v][p] = _mm512_setzero_si512(); });
    });
    for (int64_t i = 0; i < columns; i += kQuadColumns) {
      __m512i weights[Panels];
      unroll<Panels>([&](auto p) WALSH_INLINE {
        weights[p] = _mm512_load_si512(bytes + (i * kSlabPanels + kQuadColumns * p) * kPanelRows);
      });
      unroll<Vectors>([&](auto v) WALSH_INLINE {
        const __m512i b = broadcast(q + v * ldq + i);
        unroll<Panels>([&](auto p) WALSH_INLINE {
          acc[v][p] = _mm512_dpbusd_epi32(acc[v][p], weights[p], b);
        });
      });
    }
    unroll<Vectors>([&](auto v) WALSH_INLINE {
      unroll<Panels>([&](auto p) WALSH_INLINE {
        _mm512_store_si512(sums + (v * Panels + p) * kPanelRows, acc[v][p]);
      });
    });
  }

  // The same by tiles, for one or two tiles of vectors.
  template <int Panels, int Vectors>
  static void sum_columns_by_tiles(const uint8_t* bytes, const int8_t* q, int64_t ldq,
                                   int64_t columns, int32_t* sums) {
    if (columns % kTileColumns == 0) {
      TileSums<Tiles, Panels, Vectors / kTileVectors>::sum(bytes, kSlabPanels, q, ldq, columns,
                                                           sums);
      return;
    }
    constexpr int kPart = 8;  // vectors whose sums stay in registers
    for (int v = 0; v < Vectors; v += kPart) {
      sum_columns<Panels, kPart>(bytes, q + v * ldq, ldq, columns, sums + v * Panels * kPanelRows);
    }
  }

  // totals[token][panel][row] += slab times vectors [v0, v0 + Vectors). totals: that of v0's token.
  // One for all decoders whose scales are alike: compiling it is most of the work.
  template <class Scaling, int Panels, int Vectors>
  __attribute__((noinline)) static void multiply_slab(const Slab& s, int64_t v0, float* totals) {
    const Call call = s.call;
    const int token_shift = call.x.planes - 1;  // a token has 1 or 2 planes
    for (int64_t c = s.begin, columns; c < s.end; c += columns) {
      columns = Scaling::columns(call, c);
      alignas(64) int32_t sums[Vectors * Panels * kPanelRows];
      const uint8_t* bytes = s.bytes + (c - s.begin) * kPanelRows * kSlabPanels;
      if constexpr (Vectors % kTileVectors == 0) {
        sum_columns_by_tiles<Panels, Vectors>(bytes, call.q(v0) + c, call.x.cols, columns, sums);
      } else {
        sum_columns<Panels, Vectors>(bytes, call.q(v0) + c, call.x.cols, columns, sums);
      }
      __m512 scale[Panels], offset[Panels];
      for (int p = 0; p < Panels; ++p) {
        scale[p] = Scaling::scale(call, s.panel + p, Scaling::group(call, c));
        offset[p] =
            call.z_groups ? call.offset(s.panel + p, c / call.w.offset_group) : _mm512_setzero_ps();
      }
      for (int v = 0; v < Vectors; ++v) {
        const int32_t x_sum = call.x_sum(v0 + v, c, columns);
        const float x_scale = call.x_scale(v0 + v, c);
        const __m512i bias = _mm512_set1_epi32(x_sum * -kSlabBias);
        const __m512 factor = _mm512_set1_ps(x_scale);
        const __m512 shift = _mm512_set1_ps(static_cast<float>(x_sum) * x_scale);
        for (int p = 0; p < Panels; ++p) {
          const __m512i sum = _mm512_load_si512(sums + (v * Panels + p) * kPanelRows);
          float* out = totals + ((v >> token_shift) * Panels + p) * kPanelRows;
          __m512 t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(sum, bias)),
                                     _mm512_mul_ps(scale[p], factor), _mm512_load_ps(out));
          if (call.z_groups) t = _mm512_fmadd_ps(offset[p], shift, t);
          _mm512_store_ps(out, t);
        }
      }
    }
  }

  // multiply_slab for as many of `vectors`, a number known only at run time, as it is compiled for,
  // at most Vectors. Returns how many. A single panel is only ever the last of an odd number, so
  // it is compiled for few numbers.
  template <class Scaling, int Panels, int Vectors>
  static int64_t multiply_some(const Slab& s, int64_t v0, int64_t vectors, float* totals) {
    if (vectors >= Vectors) {
      multiply_slab<Scaling, Panels, Vectors>(s, v0, totals);
      return Vectors;
    }
    if constexpr (Vectors > 1) {
      constexpr auto kBelow = static_cast<unsigned>(Vectors - 1);
      constexpr int kFewer = static_cast<int>(Panels == 1 ? std::bit_floor(kBelow) : kBelow);
      return multiply_some<Scaling, Panels, kFewer>(s, v0, vectors, totals);
    }
    return vectors;  // there are none
  }

  // Decodes columns [begin, end) of one panel of a slab. Not inlined, so that each decoder is
  // compiled once, which is most of the remaining work.
  template <class Weights>
  __attribute__((noinline)) static void decode_panel(const Call& call, const Weights& weights,
                                                     int64_t panel, int64_t begin, int64_t end,
                                                     uint8_t* out) {
    static_assert(Weights::kBias == kSlabBias);
    constexpr int kUnitWords = Weights::kUnitWords;
    const uint32_t* words =
        call.w.codes.data() + (panel * panel_units(call.w) + begin / kUnitColumns) * kUnitWords;
    for (int64_t c = begin; c < end; c += kUnitColumns) {
      weights.decode(words, [&](auto quad, __m512i levels) WALSH_INLINE {
        _mm512_store_si512(out + 4 * quad * kPanelRows * kSlabPanels, levels);
      });
      words += kUnitWords;
      out += kUnitColumns * kPanelRows * kSlabPanels;
    }
  }

  // Multiplies vectors [v0, v0 + vectors), at most kBlock, in whole tokens.
  template <int Panels, class Weights>
  static void multiply_block(const Call& call, const Weights& weights, int64_t panel, int64_t v0,
                             int64_t vectors) {
    alignas(64) uint8_t bytes[kSlabColumns * kPanelRows * kSlabPanels];
    alignas(64) float totals[kBlock * kPanelRows * Panels];
    const int planes = call.x.planes;
    const int64_t tokens = vectors / planes;
    std::memset(totals, 0, static_cast<size_t>(tokens) * kPanelRows * Panels * sizeof(float));
    const int64_t step = call.step;
    const int64_t slab = kSlabColumns / step * step;
    for (int64_t begin = 0; begin < call.w.cols; begin += slab) {
      const int64_t end = std::min(begin + slab, call.w.cols);
      for (int p = 0; p < Panels; ++p)
        decode_panel(call, weights, panel + p, begin, end, bytes + 4 * p * kPanelRows);
      const Slab s{call, panel, begin, end, bytes};
      using Scaling = typename Weights::Scaling;
      const auto out = [&](int64_t v) { return totals + v / planes * Panels * kPanelRows; };
      int64_t v = 0;
      if constexpr (Tiles::kPresent) {
        for (; vectors - v >= kMostTileVectors; v += kMostTileVectors)
          multiply_slab<Scaling, Panels, kMostTileVectors>(s, v0 + v, out(v));
        if (vectors - v >= kTileVectors) {
          multiply_slab<Scaling, Panels, kTileVectors>(s, v0 + v, out(v));
          v += kTileVectors;
        }
      }
      while (v < vectors)
        v += multiply_some<Scaling, Panels, kTile>(s, v0 + v, vectors - v, out(v));
    }
    for (int64_t t = 0; t < tokens; ++t) {
      for (int p = 0; p < Panels; ++p)
        call.store(panel + p, v0 / planes + t,
                   weights.finish(call, panel + p,
                                  _mm512_load_ps(totals + (t * Panels + p) * kPanelRows)));
    }
  }

  template <class Weights>
  static void run_slabs(const Call& call, const Weights& weights) {
    [[maybe_unused]] const typename Tiles::Use use;
    const int64_t vectors = call.m * call.x.planes;
    for (int64_t panel = call.panel_begin; panel < call.panel_end; panel += kSlabPanels) {
      for (int64_t v = 0; v < vectors; v += kBlock) {
        const int64_t count = std::min<int64_t>(kBlock, vectors - v);
        if (panel + 1 < call.panel_end) {
          multiply_block<kSlabPanels>(call, weights, panel, v, count);
        } else {
          multiply_block<1>(call, weights, panel, v, count);
        }
      }
    }
  }

  // Few vectors are not the business of tiles: whoever has them calls the matmul without. Scales of
  // less than a unit are applied to slabs only.
  template <class Weights>
  static void run_with(const Call& call, const Weights& weights) {
    if (Tiles::kPresent || call.m * call.x.planes > kMostDirect || call.step < kUnitColumns) {
      run_slabs(call, weights);
    } else if constexpr (!Tiles::kPresent) {
      if (call.x.planes == 2) {
        run_direct<2>(call, weights);
      } else {
        run_direct<1>(call, weights);
      }
    }
  }
};

using MatmulVnni = IntegerMatmul<NoTiles>;

}  // namespace
}  // namespace walsh::avx512
