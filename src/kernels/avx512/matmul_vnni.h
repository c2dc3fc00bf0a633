// Multiplies int8 matrices with many vectors, on VNNI and on tiles (AMX). A 32-bit lane is one row,
// and activations are broadcast four columns at a time, so there are no horizontal sums. A slab of
// two panels is decoded once into the first-level cache, and a product blocked in registers or in
// AMX tiles runs over it. matmul_few.h multiplies few vectors.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/avx512/matmul_few.h"
#include "kernels/avx512/matmul_weights.h"
#include "kernels/avx512/tile_sums.h"

namespace walsh::avx512 {

using namespace detail;

namespace {  // Each instruction set that this is compiled for has a copy.

// Multiplies by sums of integers. Tiles is the matrix unit that sums the products of 16 and more
// vectors, or NoTiles.
template <class Tiles>
class IntegerMatmul {
 public:
  using Call = VnniCall;

  // Multiplies scalar codes, which `Table` looks up.
  template <class Table>
  static void run_scalar(const Call& call) {
    scalar::with_cpu_width(call.w.code->bits, [&](auto bits) {
      run_slabs(call, ScalarWeights<bits, Table, kBias>(call.w));
    });
  }

  template <class Decoder>
  static void run_product(const Call& call) {
    run_slabs(call, ProductWeights<Decoder>(call.w));
  }

  // Multiplies trellis codes with any number of vectors, because a trellis decoder is compiled in
  // one unit. Decoder<steps> decodes codes of these steps. `Steps` are the steps that this is
  // compiled for; none stands for all.
  template <template <class> class Decoder, typename... Steps>
  static void run_trellis(const Call& call) {
    const auto run = [&](auto steps) {
      const TrellisWeights<Decoder<decltype(steps)>> weights(call.w);
      if constexpr (!Tiles::kPresent) {
        if (FewVectors::fit(call)) return FewVectors::run(call, weights);
      }
      run_slabs(call, weights);
    };
    if constexpr (sizeof...(Steps) == 0) {
      with_trellis_steps(*call.w.trellis, run);
    } else {
      with_steps_among<Steps...>(*call.w.trellis, run);
    }
  }

 private:
  // Tiles multiply signed bytes, so their slabs have no bias.
  static constexpr int kBias = Tiles::kPresent ? 0 : kSlabBias;

  static constexpr int64_t kSlabColumns = 512;
  static constexpr int kTile = 12;  // The sums of this many vectors stay in registers.
  // A pass over the codes takes this many vectors.
  static constexpr int kBlock = Tiles::kPresent ? 8 * kMostTileVectors : 16 * kTile;

  static constexpr int kSlabPanels = 2;
  static constexpr int64_t kLineBytes = 64;  // A line of a cache has this many bytes.

  // Holds the decoded columns [begin, end) of up to kSlabPanels panels, as
  // bytes[quad][panel][row][4], and knows where the codes of the next slab are.
  struct Slab {
    const Call& call;
    int64_t panel, begin, end;
    const uint8_t* bytes;
    int64_t tile_columns;
    const char* next[kSlabPanels];  // It is null where there is nothing to prefetch.
    int64_t next_columns;           // The next slab has this many columns.
    int64_t unit_bytes;             // The codes of kUnitColumns columns have this many bytes.

    // Prefetches the codes that are as far into the next slab as columns [c, c + columns) are into
    // this one. While a slab is multiplied, nothing else would read from memory.
    WALSH_INLINE void prefetch(int64_t c, int64_t columns) const {
      const int64_t from = (c - begin) / kUnitColumns * unit_bytes;
      const int64_t to = std::min(c - begin + columns, next_columns) / kUnitColumns * unit_bytes;
      for (const char* codes : next) {
        if (codes == nullptr) continue;
        for (int64_t i = from; i < to; i += kLineBytes)
          _mm_prefetch(codes + i, _MM_HINT_T1);
      }
    }
  };

  // Sets sums[vector][panel][row] to first[vector] plus the products over `columns` columns with
  // `Vectors` vectors. It is not inlined, so that nothing else competes for registers.
  template <int Panels, int Vectors>
  __attribute__((noinline)) static void sum_columns(const uint8_t* bytes, const int8_t* q,
                                                    int64_t ldq, int64_t columns,
                                                    const int32_t* first, int32_t* sums) {
    __m512i acc[Vectors][Panels];
    unroll<Vectors>([&](auto v) WALSH_INLINE {
      unroll<Panels>([&](auto p) WALSH_INLINE { acc[v][p] = _mm512_set1_epi32(first[v]); });
    });
    for (int64_t i = 0; i < columns; i += kQuadColumns) {
      __m512i weights[Panels];
      unroll<Panels>([&](auto p) WALSH_INLINE {
        weights[p] = _mm512_load_si512(bytes + (i * kSlabPanels + kQuadColumns * p) * kPanelRows);
        if constexpr (kBias == 0) weights[p] = with_other_sign(weights[p]);
      });
      unroll<Vectors>([&](auto v) WALSH_INLINE {
        const __m512i b = broadcast_quad(q + v * ldq + i);
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

  // Converts signed bytes to bytes with a bias of 128, or back.
  WALSH_INLINE static __m512i with_other_sign(__m512i bytes) {
    return _mm512_xor_si512(bytes, _mm512_set1_epi8(static_cast<char>(0x80)));
  }

  // Computes sums[vector][panel][row] for columns [c, c + columns) and vectors [v0, v0 + Vectors).
  template <int Panels, int Vectors>
  WALSH_INLINE static void sum_part(const Slab& s, int64_t v0, int64_t c, int64_t columns,
                                    int32_t* sums) {
    const int64_t ldq = s.call.x.stride;
    const int8_t* q = s.call.q(v0) + c;
    const uint8_t* bytes = s.bytes + (c - s.begin) * kPanelRows * kSlabPanels;
    if constexpr (Vectors % kTileVectors == 0) {
      if (columns % s.tile_columns == 0) {
        TileSums<Tiles, Panels, Vectors / kTileVectors>::sum(bytes, kSlabPanels, q, ldq, columns,
                                                             s.tile_columns, sums);
        return;
      }
    }
    int32_t first[Vectors];
    for (int v = 0; v < Vectors; ++v)
      first[v] = s.call.x_sum(v0 + v, c, columns) * -kSlabBias;
    // The sums of this many vectors fit in registers.
    constexpr int kPart = Vectors % kTileVectors == 0 ? 8 : Vectors;
    for (int v = 0; v < Vectors; v += kPart) {
      sum_columns<Panels, kPart>(bytes, q + v * ldq, ldq, columns, first + v,
                                 sums + v * Panels * kPanelRows);
    }
  }

  // Adds the sums of columns [c, c + columns), times their scales, to totals[token][panel][row].
  template <class Scaling, int Panels, int Vectors, int Planes, bool Offsets>
  WALSH_INLINE static void add_sums(const Slab& s, int64_t v0, int64_t c, int64_t columns,
                                    const int32_t* sums, float* totals) {
    const Call& call = s.call;
    __m512 scale[Panels], offset[Panels];
    unroll<Panels>([&](auto p) WALSH_INLINE {
      scale[p] = Scaling::scale(call, s.panel + p, Scaling::group(call, c));
      if constexpr (Offsets) offset[p] = call.offset(s.panel + p, c / call.w.offset_group);
    });
    const float* x_scales = call.x_scales(v0, c);
    for (int v = 0; v < Vectors; v += Planes) {
      const float x_scale = x_scales[(v + Planes - 1) * call.x_groups];
      const __m512 factor = _mm512_set1_ps(x_scale);
      __m512 shift;
      if constexpr (Offsets) {
        int32_t x_sum = call.x_sum(v0 + v, c, columns);
        if constexpr (Planes == 2) x_sum = x_sum * kPlaneRatio + call.x_sum(v0 + v + 1, c, columns);
        shift = _mm512_set1_ps(static_cast<float>(x_sum) * x_scale);
      }
      float* out = totals + v / Planes * Panels * kPanelRows;
      unroll<Panels>([&](auto p) WALSH_INLINE {
        const int32_t* from = sums + (v * Panels + p) * kPanelRows;
        __m512i sum = _mm512_load_si512(from);
        if constexpr (Planes == 2)
          sum = join_planes(sum, _mm512_load_si512(from + Panels * kPanelRows));
        __m512 t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale[p], factor),
                                   _mm512_load_ps(out + p * kPanelRows));
        if constexpr (Offsets) t = _mm512_fmadd_ps(offset[p], shift, t);
        _mm512_store_ps(out + p * kPanelRows, t);
      });
    }
  }

  // Adds the slab times vectors [v0, v0 + Vectors) to totals[token][panel][row], whose first is
  // v0's token. While the matrix unit sums the columns of one scale, the sums of the columns before
  // are scaled. All decoders whose scales are alike share an instance, because compiling it takes
  // most of the time.
  template <class Scaling, int Panels, int Vectors>
  __attribute__((noinline)) static void multiply_slab(const Slab& s, int64_t v0, float* totals) {
    constexpr int kAhead = Vectors % kTileVectors == 0 ? 1 : 0;
    const Call call = s.call;
    const Slab slab{call,
                    s.panel,
                    s.begin,
                    s.end,
                    s.bytes,
                    s.tile_columns,
                    {s.next[0], s.next[1]},
                    s.next_columns,
                    s.unit_bytes};
    alignas(64) int32_t sums[kAhead + 1][Vectors * Panels * kPanelRows];
    const auto add_planes = [&](auto planes, int64_t c, int64_t columns, const int32_t* from) {
      if (call.z_groups) {
        add_sums<Scaling, Panels, Vectors, planes, true>(slab, v0, c, columns, from, totals);
      } else {
        add_sums<Scaling, Panels, Vectors, planes, false>(slab, v0, c, columns, from, totals);
      }
    };
    const auto add = [&](int64_t c, int64_t columns, const int32_t* from) {
      if constexpr (Vectors % 2 == 0) {
        if (call.x.planes == 2)
          return add_planes(std::integral_constant<int, 2>(), c, columns, from);
      }
      add_planes(std::integral_constant<int, 1>(), c, columns, from);
    };
    [[maybe_unused]] int64_t before = 0;  // The sums of this many columns are not scaled yet.
    int part = 0;
    for (int64_t c = s.begin, columns; c < s.end; c += columns) {
      columns = Scaling::columns(call, c);
      slab.prefetch(c, columns);
      sum_part<Panels, Vectors>(slab, v0, c, columns, sums[part * kAhead]);
      if constexpr (kAhead == 0) {
        add(c, columns, sums[0]);
      } else {
        part ^= 1;
        if (before != 0) add(c - before, before, sums[part]);
        before = columns;
      }
    }
    if constexpr (kAhead == 1) add(s.end - before, before, sums[part ^ 1]);
  }

  // Calls multiply_slab for as many of `vectors` vectors as it is compiled for, at most Vectors,
  // and returns how many those are. A single panel is only ever the last of an odd number, so it is
  // compiled for few numbers of vectors.
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
    return vectors;  // There are no vectors.
  }

  template <class Weights>
  static const uint32_t* codes_at(const Call& call, int64_t panel, int64_t column) {
    return call.w.codes.data() +
           (panel * panel_units(call.w) + column / kUnitColumns) * Weights::kUnitWords;
  }

  // Decodes columns [begin, end) of one panel of a slab. It is not inlined, so that each decoder is
  // compiled once; that takes most of the remaining time.
  template <class Weights>
  __attribute__((noinline)) static void decode_panel(const Call& call, const Weights& weights,
                                                     int64_t panel, int64_t begin, int64_t end,
                                                     uint8_t* out) {
    static_assert(Weights::kBias == kBias || (Weights::kBias == kSlabBias && kBias == 0));
    constexpr int kUnitWords = Weights::kUnitWords;
    const uint32_t* words = codes_at<Weights>(call, panel, begin);
    for (int64_t c = begin; c < end; c += kUnitColumns) {
      weights.decode(words, [&](auto quad, __m512i levels) WALSH_INLINE {
        if constexpr (Weights::kBias != kBias) levels = with_other_sign(levels);
        _mm512_store_si512(out + 4 * quad * kPanelRows * kSlabPanels, levels);
      });
      words += kUnitWords;
      out += kUnitColumns * kPanelRows * kSlabPanels;
    }
  }

  // Multiplies vectors [v0, v0 + vectors), at most kBlock, which are whole tokens. The next block
  // begins with panel `next_panel`.
  template <int Panels, class Weights>
  static void multiply_block(const Call& call, const Weights& weights, int64_t panel, int64_t v0,
                             int64_t vectors, int64_t tile_columns, int64_t next_panel) {
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
      const bool last = end == call.w.cols;
      const int64_t then = last ? next_panel : panel, then_begin = last ? 0 : end;
      const int64_t then_columns = std::min(slab, call.w.cols - then_begin);
      Slab s{
          call, panel, begin, end, bytes, tile_columns, {}, then_columns, 4 * Weights::kUnitWords};
      for (int p = 0; p < Panels && then + p < call.panel_end; ++p)
        s.next[p] = reinterpret_cast<const char*>(codes_at<Weights>(call, then + p, then_begin));
      const auto prefetched = [&] { std::fill(s.next, s.next + kSlabPanels, nullptr); };
      using Scaling = typename Weights::Scaling;
      const auto out = [&](int64_t v) { return totals + v / planes * Panels * kPanelRows; };
      int64_t v = 0;
      if constexpr (Tiles::kPresent) {
        for (; vectors - v >= kMostTileVectors; v += kMostTileVectors) {
          multiply_slab<Scaling, Panels, kMostTileVectors>(s, v0 + v, out(v));
          prefetched();
        }
        if (vectors - v >= kTileVectors) {
          multiply_slab<Scaling, Panels, kTileVectors>(s, v0 + v, out(v));
          v += kTileVectors;
          prefetched();
        }
      }
      for (; v < vectors; prefetched())
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
    const int64_t tile_columns = tile_columns_of(call.step);
    [[maybe_unused]] const typename Tiles::Use use(tile_columns);
    const int64_t vectors = call.m * call.x.planes;
    for (int64_t panel = call.panel_begin; panel < call.panel_end; panel += kSlabPanels) {
      for (int64_t v = 0; v < vectors; v += kBlock) {
        const int64_t count = std::min<int64_t>(kBlock, vectors - v);
        const int64_t next = v + count < vectors ? panel : panel + kSlabPanels;
        if (panel + 1 < call.panel_end) {
          multiply_block<kSlabPanels>(call, weights, panel, v, count, tile_columns, next);
        } else {
          multiply_block<1>(call, weights, panel, v, count, tile_columns, next);
        }
      }
    }
    // Other threads may read the outputs as soon as this returns.
    if (call.past_caches) _mm_sfence();
  }
};

using MatmulVnni = IntegerMatmul<NoTiles>;

}  // namespace
}  // namespace walsh::avx512
