// The int8 matmul on AVX2 for codes whose levels are equidistant: the unsigned codes themselves are
// multiplied, and the first level times the sum of the activations is added, which gives the same
// integers. Codes of at most six bits cannot saturate vpmaddubsw, and several of its sums fit in 16
// bits, so there are fewer operations than in matmul_maddubs.h.
#include <numeric>
#include <type_traits>
#include <vector>

#include "codec/scalar/simd/code_decoder.h"
#include "kernels/avx2/bytes.h"
#include "kernels/avx2/matmul_maddubs.h"

namespace walsh::avx2 {

namespace {

constexpr int64_t kHalfUnit = kUnitColumns / 2;

// Codes as they are, for a decoder whose tables would be 0, 1, 2, ...
struct CodeBytes : Bytes {
  struct Table {
    explicit Table(const uint8_t*) {}
    WALSH_INLINE __m256i operator()(__m256i index) const {
      return _mm256_and_si256(index, _mm256_set1_epi8(0x0f));
    }
  };
};

// Tables of two- and three-bit codes tell the fields of a nibble apart.
template <int Bits>
using UnsignedDecoder = CodeDecoder<Bits, std::conditional_t<(Bits >= 4), CodeBytes, Bytes>>;

// The arguments, and sums of the activations of half units where scales are per 16 columns.
struct LinearCall : Call {
  std::vector<int32_t> half_sums;  // [vector][cols / 16]

  LinearCall(const Call& call, int64_t vectors) : Call(call) {
    if (step >= kUnitColumns) return;
    half_sums.reserve(static_cast<size_t>(vectors * w.cols / kHalfUnit));
    for (int64_t v = 0; v < vectors; ++v) {
      const int8_t* q = x.q.data() + v * x.cols;
      for (int64_t c = 0; c < w.cols; c += kHalfUnit)
        half_sums.push_back(std::accumulate(q + c, q + c + kHalfUnit, 0));
    }
  }

  // The sum of the activations of a step: of units, or of half a unit.
  WALSH_INLINE int32_t x_sum(int64_t vector, int64_t c, int64_t columns) const {
    if (columns < kUnitColumns)
      return half_sums[static_cast<size_t>((vector * w.cols + c) / kHalfUnit)];
    const int32_t* sums = x.sums.data() + (vector * x.cols + c) / kUnitColumns;
    int32_t sum = sums[0];
    for (int64_t i = 1; i < columns / kUnitColumns; ++i)
      sum += sums[i];
    return sum;
  }
};

// Products of one part of the panels: rows lane .. lane + 7 with vectors v0 .. v0 + Vectors - 1.
template <int Bits, int Vectors, int Planes>
class LinearProduct {
 public:
  LinearProduct(const LinearCall& call, int64_t panel, int lane, int64_t v0)
      : call_(call), panel_(panel), lane_(lane), v0_(v0) {
    unroll<Vectors / Planes>([&](auto t) WALSH_INLINE { total_[t] = _mm256_setzero_ps(); });
  }

  // HalfUnits: scales are per 16 columns.
  template <bool HalfUnits>
  void run(const UnsignedDecoder<Bits>& decoder) {
    const PanelMatrix& w = call_.w;
    const uint32_t* words = w.codes.data() + panel_ * panel_words(w, Bits);
    const int64_t step = std::max(call_.step, kUnitColumns);
    for (int64_t c = 0; c < w.cols; c += step) {
      const int64_t end = std::min(c + step, w.cols);
      constexpr int kParts = HalfUnits ? 2 : 1;
      __m256i sums[kParts][Vectors];
      unroll<kParts * Vectors>([&](auto i) WALSH_INLINE { sums[i % kParts][i / kParts] = zero(); });
      for (int64_t u = c; u < end; u += kUnitColumns) {
        add_unit(decoder, words, u, sums);
        words += Bits * kPanelRows;
      }
      if constexpr (HalfUnits) {
        add_step(c, kHalfUnit, sums[0]);
        add_step(c + kHalfUnit, kHalfUnit, sums[1]);
      } else {
        add_step(c, end - c, sums[0]);
      }
    }
    unroll<Vectors / Planes>([&](auto t) WALSH_INLINE {
      call_.store(v0_ / Planes + t, total_[t],
                  [&](int i) { return panel_ * kPanelRows + lane_ + i; });
    });
  }

 private:
  // Quads whose sums of pairs of products fit in 16 bits together.
  static constexpr int kQuads = Bits == 4 ? 8 : Bits == 6 ? 2 : 4;

  static __m256i zero() { return _mm256_setzero_si256(); }

  // Adds the products of a unit's codes: of its halves if there are two parts.
  template <int Parts>
  WALSH_INLINE void add_unit(const UnsignedDecoder<Bits>& decoder, const uint32_t* words, int64_t u,
                             __m256i (&sums)[Parts][Vectors]) const {
    const int8_t* q = call_.x.q.data() + v0_ * call_.x.cols + u;
    __m256i pairs[Vectors];
    decoder.decode(words + lane_, [&](auto quad, __m256i codes) WALSH_INLINE {
      unroll<Vectors>([&](auto v) WALSH_INLINE {
        int32_t four;
        std::memcpy(&four, q + v * call_.x.cols + 4 * quad, 4);
        const __m256i products = _mm256_maddubs_epi16(codes, _mm256_set1_epi32(four));
        if constexpr (quad % kQuads == 0) {
          pairs[v] = products;
        } else {
          pairs[v] = _mm256_add_epi16(pairs[v], products);
        }
        if constexpr (quad % kQuads == kQuads - 1) {
          __m256i& sum = sums[quad * Parts / 8][v];
          sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs[v], _mm256_set1_epi16(1)));
        }
      });
    });
  }

  // Adds the integer sums of `columns` columns from c, times their scales, to the totals.
  WALSH_INLINE void add_step(int64_t c, int64_t columns, const __m256i (&sums)[Vectors]) {
    const PanelMatrix& w = call_.w;
    const __m256 scale =
        _mm256_mul_ps(call_.f16(w.scales, panel_ * call_.w_groups + call_.w_group(c), lane_),
                      _mm256_set1_ps(w.code->unit));
    __m256 offset = _mm256_setzero_ps();
    if (w.offset_group != 0) {
      const bool as_scales = w.offset_group == w.group;
      const int64_t group = as_scales ? call_.w_group(c) : c / w.offset_group;
      offset = call_.f16(w.offsets, panel_ * call_.z_groups + group, lane_);
    }
    unroll<Vectors>([&](auto v) WALSH_INLINE {
      const int32_t x_sum = call_.x_sum(v0_ + v, c, columns);
      const float x_scale = call_.x.scales.data()[(v0_ + v) * call_.x_groups + call_.x_group(c)];
      const __m256i sum =
          _mm256_add_epi32(sums[v], _mm256_set1_epi32(x_sum * w.code->levels_i8[0]));
      __m256& t = total_[v / Planes];
      t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(x_scale)),
                          t);
      if (w.offset_group != 0)
        t = _mm256_fmadd_ps(offset, _mm256_set1_ps(static_cast<float>(x_sum) * x_scale), t);
    });
  }

  const LinearCall& call_;
  const int64_t panel_;
  const int lane_;
  const int64_t v0_;
  __m256 total_[Vectors / Planes];
};

template <int Bits, int Planes>
void multiply_linear_planes(const Call& arguments, int64_t m, int64_t panel_begin,
                            int64_t panel_end) {
  alignas(16) int8_t codes[16];
  for (int i = 0; i < 16; ++i)
    codes[i] = static_cast<int8_t>(i);
  const UnsignedDecoder<Bits> decoder(codes);
  const int64_t vectors = m * Planes;
  const LinearCall call(arguments, vectors);
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    int64_t v = 0;
    const auto multiply = [&](auto count) {
      for (int lane = 0; lane < kPanelRows; lane += kLanes) {
        LinearProduct<Bits, count, Planes> product(call, panel, lane, v);
        if constexpr (scalar::has_half_units(Bits)) {
          if (call.step < kUnitColumns) {
            product.template run<true>(decoder);
            continue;
          }
        }
        product.template run<false>(decoder);
      }
      v += count;
    };
    if constexpr (Planes == 1) {
      while (vectors - v >= 4)
        multiply(std::integral_constant<int, 4>());
    }
    while (vectors - v >= 2)
      multiply(std::integral_constant<int, 2>());
    if (v < vectors) multiply(std::integral_constant<int, Planes>());
  }
}

}  // namespace

void matmul_linear(const PanelMatrix& w, const ActivationsI8& x, int64_t m, float* y, int64_t ldy,
                   int64_t panel_begin, int64_t panel_end, bool accumulate) {
  const Call call(w, x, y, ldy, accumulate);
  scalar::with_cpu_width(w.code->bits, [&](auto bits) {
    if constexpr (bits < 8) {
      if (x.planes == 2) {
        multiply_linear_planes<bits, 2>(call, m, panel_begin, panel_end);
      } else {
        multiply_linear_planes<bits, 1>(call, m, panel_begin, panel_end);
      }
    }
  });
}

}  // namespace walsh::avx2
