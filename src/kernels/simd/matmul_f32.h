// Computes the float32 matmul for any vector width. It decodes 128 columns of a few registers of
// rows to floats in the first-level cache, then multiplies them with blocks of tokens in registers.
// A single token takes the same path, so results do not depend on the number of tokens.
//
// `Arch` is the instruction set: types Ints, Reg and Table (16 floats, looked up by the low 4 bits
// of every lane), kWidth rows per register, kTokens per tile with two registers of rows,
// load_words, shift_right<n> of lanes, select as in code_decoder.h, byte<n> (sign-extended, as
// float), f16, the float operations, Trellis<steps> (a decoder as in trellis_decoder.h) and
// without_bias, which returns levels as signed bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "base/unroll.h"
#include "codec/scalar/simd/float_decoder.h"
#include "kernels/ops.h"
#include "kernels/panel_layout.h"

namespace walsh::detail {

template <class Arch>
class DecodedMatmul {
 public:
  using Call = PanelMatmulF32;

  static void run(const Call& call) {
    if (!call.w.trellis) return run_with(call, PlainSlab(call.w));
    with_trellis_steps(*call.w.trellis,
                       [&](auto steps) { run_with(call, TrellisSlab<decltype(steps)>(call.w)); });
  }

 private:
  using Ints = typename Arch::Ints;
  using Reg = typename Arch::Reg;
  static constexpr int kWidth = Arch::kWidth;
  static constexpr int kTokens = Arch::kTokens;
  static constexpr int kBlock = 8 * kTokens;  // A pass over the codes takes this many tokens.

  using Tables = FloatTables<Arch>;

  // Decodes columns [begin, end) of kWidth rows from `row` on, to out[column * stride + lane].
  template <int Bits>
  static void decode_rows(const PanelMatrix& w, const Tables& tables, int64_t row, int64_t begin,
                          int64_t end, int64_t stride, float* out) {
    const int64_t panel = row / kPanelRows, lane = row % kPanelRows;
    const uint32_t* words =
        w.codes.data() + panel * panel_words(w, Bits) + begin / kUnitColumns * Bits * kPanelRows;
    const uint16_t* scales = w.scales.data() + panel * ceil_div(w.cols, w.group) * kPanelRows;
    for (int64_t c = begin; c < end; c += kUnitColumns) {
      // A unit has one scale, or one for each half.
      const int64_t middle = c + kUnitColumns / 2;
      const Reg scale[] = {Arch::f16(scales + c / w.group * kPanelRows + lane),
                           Arch::f16(scales + middle / w.group * kPanelRows + lane)};
      float* to = out + (c - begin) * stride;
      if (w.offset_group) {
        const int64_t row_groups = panel * ceil_div(w.cols, w.offset_group);
        const auto offset_at = [&](int64_t column) {
          const int64_t group = row_groups + column / w.offset_group;
          return Arch::f16(w.offsets.data() + group * kPanelRows + lane);
        };
        const Reg offset[] = {offset_at(c), offset_at(middle)};
        decode_floats<Bits, Arch>(tables, words + lane, [&](auto column, Reg level) WALSH_INLINE {
          const int half = column * 2 / static_cast<int>(kUnitColumns);
          Arch::store(to + column * stride, Arch::add(Arch::mul(scale[half], level), offset[half]));
        });
      } else {
        decode_floats<Bits, Arch>(tables, words + lane, [&](auto column, Reg level) WALSH_INLINE {
          const int half = column * 2 / static_cast<int>(kUnitColumns);
          Arch::store(to + column * stride, Arch::mul(scale[half], level));
        });
      }
      words += Bits * kPanelRows;
    }
  }

  // Decodes product codes as decode_rows does others.
  static void decode_product(const PanelMatrix& w, int64_t row, int64_t begin, int64_t end,
                             int64_t stride, float* out) {
    const int64_t panel = row / kPanelRows;
    const int lane = static_cast<int>(row % kPanelRows);
    const uint32_t* words = w.codes.data() + panel * panel_words(w, kProductWords);
    const uint16_t* scales = w.scales.data() + panel * ceil_div(w.cols, w.group) * kPanelRows;
    for (int64_t c = begin; c < end; ++c, out += stride) {
      const Reg scale = Arch::f16(scales + c / w.group * kPanelRows + lane);
      for (int i = 0; i < kWidth; ++i) {
        out[i] = w.product->unit * static_cast<float>(product_level_i8(w, words, lane + i, c));
      }
      Arch::store(out, Arch::mul(scale, Arch::load(out)));
    }
  }

  static void decode_slab(const PanelMatrix& w, const Tables& tables, int64_t row, int64_t begin,
                          int64_t end, int64_t stride, float* out) {
    if (w.product) return decode_product(w, row, begin, end, stride, out);
    scalar::with_cpu_width(w.code->bits, [&](auto bits) {
      decode_rows<bits>(w, tables, row, begin, end, stride, out);
    });
  }

  // Decodes formats in which a lane is a row.
  class PlainSlab {
   public:
    explicit PlainSlab(const PanelMatrix& w) : w_(w), tables_(w.code) {}

    // Decodes columns [begin, end) of kWidth lanes from `lane` on, counted over all panels, to
    // out[column * stride + lane].
    void decode(int64_t lane, int64_t begin, int64_t end, int64_t stride, float* out) const {
      decode_slab(w_, tables_, lane, begin, end, stride, out);
    }
    static int64_t row_of(int64_t lane) { return lane; }
    // Returns the number of lanes in whole registers that contain rows.
    static int64_t lanes(const PanelMatrix& w) { return ceil_div(w.rows, kWidth) * kWidth; }

   private:
    const PanelMatrix& w_;
    Tables tables_;
  };

  // Decodes trellises, whose lanes are rows in another order.
  template <class Steps>
  class TrellisSlab {
   public:
    explicit TrellisSlab(const PanelMatrix& w) : w_(w), decoder_(*w.trellis) {}

    void decode(int64_t lane, int64_t begin, int64_t end, int64_t stride, float* out) const {
      const int64_t panel = lane / kPanelRows, first = lane % kPanelRows;
      const int64_t blocks = column_blocks(w_.cols);
      const Reg unit = Arch::set(w_.trellis->unit);
      const uint32_t* words =
          w_.codes.data() + (panel * panel_units(w_) + begin / kUnitColumns) * Steps::kUnitWords;
      for (int64_t c = begin; c < end; c += kUnitColumns) {
        const int64_t block = column_block(c, w_.cols);
        const int64_t group = w_.trellis->block_scales ? panel * blocks + block : panel;
        Reg scale = Arch::f16(w_.scales.data() + group * kPanelRows + first);
        if (!w_.trellis->block_scales) {
          scale = Arch::mul(scale, Arch::set(w_.col_factors.data()[block]));
        }
        decoder_.decode(words, static_cast<int>(first), [&](auto quad, Ints levels) WALSH_INLINE {
          const Ints weights = Arch::without_bias(levels);
          unroll<4>([&](auto i) WALSH_INLINE {
            const Reg level = Arch::mul(unit, Arch::template byte<i>(weights));
            Arch::store(out + (4 * quad + i) * stride, Arch::mul(scale, level));
          });
        });
        words += Steps::kUnitWords;
        out += kUnitColumns * stride;
      }
    }
    static int64_t row_of(int64_t lane) {
      return lane / kPanelRows * kPanelRows + trellis_row(static_cast<int>(lane % kPanelRows));
    }
    static int64_t lanes(const PanelMatrix& w) { return w.panels() * kPanelRows; }

   private:
    const PanelMatrix& w_;
    typename Arch::template Trellis<Steps> decoder_;
  };

  template <class Slab>
  static void run_with(const Call& call, const Slab& slab) {
    const int64_t lane_end = std::min(call.panel_end * kPanelRows, slab.lanes(call.w));
    for (int64_t lane = call.panel_begin * kPanelRows; lane < lane_end; lane += 2 * kWidth) {
      for (int64_t t = 0; t < call.m; t += kBlock) {
        const int64_t tokens = std::min<int64_t>(kBlock, call.m - t);
        if (lane + kWidth < lane_end) {
          multiply_block<2>(call, slab, lane, t, tokens);
        } else {
          multiply_block<1>(call, slab, lane, t, tokens);
        }
      }
    }
  }

  // Computes totals[token][register][lane] += slab[column][register][lane] * x[token][column].
  template <int Regs, int Tokens>
  static void multiply_slab(const float* slab, int64_t columns, const float* x, int64_t ldx,
                            float* totals) {
    Reg acc[Tokens][Regs];
    unroll<Tokens>([&](auto t) WALSH_INLINE {
      unroll<Regs>([&](auto r) WALSH_INLINE { acc[t][r] = Arch::zero(); });
    });
    for (int64_t c = 0; c < columns; ++c) {
      Reg weights[Regs];
      unroll<Regs>([&](auto r)
                       WALSH_INLINE { weights[r] = Arch::load(slab + (c * Regs + r) * kWidth); });
      unroll<Tokens>([&](auto t) WALSH_INLINE {
        const Reg b = Arch::set(x[t * ldx + c]);
        unroll<Regs>([&](auto r) WALSH_INLINE { acc[t][r] = Arch::fma(weights[r], b, acc[t][r]); });
      });
    }
    unroll<Tokens>([&](auto t) WALSH_INLINE {
      unroll<Regs>([&](auto r) WALSH_INLINE {
        float* out = totals + (t * Regs + r) * kWidth;
        Arch::store(out, Arch::add(Arch::load(out), acc[t][r]));
      });
    });
  }

  // Calls multiply_slab for a number of tokens known only at run time, 1..Tokens.
  template <int Regs, int Tokens>
  static void multiply_some(int64_t tokens, const float* slab, int64_t columns, const float* x,
                            int64_t ldx, float* totals) {
    if (tokens == Tokens) {
      multiply_slab<Regs, Tokens>(slab, columns, x, ldx, totals);
    } else if constexpr (Tokens > 1) {
      multiply_some<Regs, Tokens - 1>(tokens, slab, columns, x, ldx, totals);
    }
  }

  // Multiplies lanes lane .. lane + Regs * kWidth - 1 with tokens t0 .. t0 + tokens - 1, at most
  // kBlock.
  template <int Regs, class Slab>
  static void multiply_block(const Call& call, const Slab& decoder, int64_t lane, int64_t t0,
                             int64_t tokens) {
    alignas(64) float slab[kF32Block * Regs * kWidth];
    alignas(64) float totals[kBlock * Regs * kWidth];
    const int64_t stride = Regs * kWidth;
    std::memset(totals, 0, static_cast<size_t>(tokens * stride) * sizeof(float));
    for (int64_t begin = 0; begin < call.w.cols; begin += kF32Block) {
      const int64_t end = std::min(begin + kF32Block, call.w.cols);
      for (int r = 0; r < Regs; ++r)
        decoder.decode(lane + r * kWidth, begin, end, stride, slab + r * kWidth);
      for (int64_t t = 0; t < tokens; t += kTokens) {
        multiply_some<Regs, kTokens>(std::min<int64_t>(kTokens, tokens - t), slab, end - begin,
                                     call.x + (t0 + t) * call.ldx + begin, call.ldx,
                                     totals + t * stride);
      }
    }
    for (int64_t t = 0; t < tokens; ++t) {
      float* out = call.y + (t0 + t) * call.ldy;
      for (int64_t i = 0; i < stride; ++i) {
        const int64_t row = decoder.row_of(lane + i);
        if (row >= call.w.rows) continue;
        const float total = totals[t * stride + i];
        out[row] = call.accumulate ? out[row] + total : total;
      }
    }
  }
};

}  // namespace walsh::detail
