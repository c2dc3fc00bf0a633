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

// Sums of the activations of half units, where scales are per 16 columns: [vector][cols / 16].
std::vector<int32_t> half_sums(const Call& call, int64_t vectors) {
  std::vector<int32_t> sums;
  if (call.step >= kUnitColumns) return sums;
  const int8_t* const end = call.x.q.data() + vectors * call.x.cols;
  sums.reserve(static_cast<size_t>(vectors * call.x.cols / kHalfUnit));
  for (const int8_t* q = call.x.q.data(); q < end; q += kHalfUnit)
    sums.push_back(std::accumulate(q, q + kHalfUnit, 0));
  return sums;
}

// Products of rows lane .. lane + 7 of a panel with vectors v0 .. v0 + Vectors - 1. HalfUnits:
// scales are per 16 columns. Members are what would otherwise be read again after every store.
template <int Bits, int Vectors, int Planes, bool HalfUnits>
class LinearProduct {
 public:
  LinearProduct(const Call& call, const int32_t* halves, int64_t panel, int lane, int64_t v0)
      : call_(call),
        row_(panel * kPanelRows + lane),
        token_(v0 / Planes),
        step_(std::max(call.step, kUnitColumns)),
        words_(call.w.codes.data() + panel * panel_words(call.w, Bits) + lane),
        scales_(call.w.scales.data() + panel * call.w_groups * kPanelRows + lane),
        offsets_(call.w.offset_group == 0
                     ? nullptr
                     : call.w.offsets.data() + panel * call.z_groups * kPanelRows + lane),
        ldq_(call.x.cols),
        q_(call.x.q.data() + v0 * ldq_),
        ld_sums_(ldq_ / (HalfUnits ? kHalfUnit : kUnitColumns)),
        sums_((HalfUnits ? halves : call.x.sums.data()) + v0 * ld_sums_),
        ld_scales_(call.x_groups),
        x_scales_(call.x.scales.data() + v0 * ld_scales_),
        first_level_(call.w.code->levels_i8[0]),
        unit_(call.w.code->unit) {}

  void run(const UnsignedDecoder<Bits>& decoder) const {
    const int64_t cols = call_.w.cols;
    const uint32_t* words = words_;
    __m256 total[Vectors / Planes];
    unroll<Vectors / Planes>([&](auto t) WALSH_INLINE { total[t] = _mm256_setzero_ps(); });
    for (int64_t c = 0; c < cols; c += step_) {
      const int64_t end = std::min(c + step_, cols);
      constexpr int kParts = HalfUnits ? 2 : 1;
      __m256i sums[kParts][Vectors];
      unroll<kParts * Vectors>(
          [&](auto i) WALSH_INLINE { sums[i % kParts][i / kParts] = _mm256_setzero_si256(); });
      for (int64_t u = c; u < end; u += kUnitColumns) {
        add_unit(decoder, words, u, sums);
        words += Bits * kPanelRows;
      }
      if constexpr (HalfUnits) {
        add_step(c, 1, sums[0], total);
        add_step(c + kHalfUnit, 1, sums[1], total);
      } else {
        add_step(c, (end - c) / kUnitColumns, sums[0], total);
      }
    }
    unroll<Vectors / Planes>([&](auto t) WALSH_INLINE {
      call_.store(token_ + t, total[t], [&](int i) { return row_ + i; });
    });
  }

 private:
  // Quads whose sums of pairs of products fit in 16 bits together.
  static constexpr int kQuads = Bits == 4 ? 8 : Bits == 6 ? 2 : 4;

  // Adds the products of a unit's codes: of its halves if there are two parts.
  template <int Parts>
  WALSH_INLINE void add_unit(const UnsignedDecoder<Bits>& decoder, const uint32_t* words, int64_t u,
                             __m256i (&sums)[Parts][Vectors]) const {
    const int8_t* q = q_ + u;
    __m256i pairs[Vectors];
    decoder.decode(words, [&](auto quad, __m256i codes) WALSH_INLINE {
      unroll<Vectors>([&](auto v) WALSH_INLINE {
        int32_t four;
        std::memcpy(&four, q + v * ldq_ + 4 * quad, 4);
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

  WALSH_INLINE static __m256 f16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  WALSH_INLINE int32_t x_sum(int64_t vector, int64_t c, int64_t units) const {
    if constexpr (HalfUnits) return sums_[vector * ld_sums_ + c / kHalfUnit];
    const int32_t* sums = sums_ + vector * ld_sums_ + c / kUnitColumns;
    int32_t sum = sums[0];
    for (int64_t i = 1; i < units; ++i)
      sum += sums[i];
    return sum;
  }

  // Adds the integer sums of a step from c, times their scales, to the totals.
  WALSH_INLINE void add_step(int64_t c, int64_t units, const __m256i (&sums)[Vectors],
                             __m256 (&total)[Vectors / Planes]) const {
    const int64_t group = HalfUnits ? c / kHalfUnit : call_.w_group(c);
    const __m256 scale = _mm256_mul_ps(f16(scales_ + group * kPanelRows), _mm256_set1_ps(unit_));
    __m256 offset = _mm256_setzero_ps();
    if (offsets_ != nullptr) {
      const bool as_scales = HalfUnits || call_.w.offset_group == call_.w.group;
      offset = f16(offsets_ + (as_scales ? group : c / call_.w.offset_group) * kPanelRows);
    }
    const float* x_scales = x_scales_ + call_.x_group(c);
    unroll<Vectors>([&](auto v) WALSH_INLINE {
      const int32_t x = x_sum(v, c, units);
      const __m256 x_scale = _mm256_set1_ps(x_scales[v * ld_scales_]);
      const __m256i sum = _mm256_add_epi32(sums[v], _mm256_set1_epi32(x * first_level_));
      __m256& t = total[v / Planes];
      t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, x_scale), t);
      if (offsets_ != nullptr) {
        const __m256 shift = _mm256_mul_ps(_mm256_set1_ps(static_cast<float>(x)), x_scale);
        t = _mm256_fmadd_ps(offset, shift, t);
      }
    });
  }

  const Call& call_;
  const int64_t row_, token_, step_;
  const uint32_t* const words_;
  const uint16_t* const scales_;
  const uint16_t* const offsets_;
  const int64_t ldq_;
  const int8_t* const q_;
  const int64_t ld_sums_;
  const int32_t* const sums_;
  const int64_t ld_scales_;
  const float* const x_scales_;
  const int first_level_;
  const float unit_;
};

template <int Bits, int Planes>
void multiply_linear_planes(const Call& call, int64_t m, int64_t panel_begin, int64_t panel_end) {
  alignas(16) int8_t codes[16];
  for (int i = 0; i < 16; ++i)
    codes[i] = static_cast<int8_t>(i);
  const UnsignedDecoder<Bits> decoder(codes);
  const int64_t vectors = m * Planes;
  const std::vector<int32_t> halves = half_sums(call, vectors);
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    int64_t v = 0;
    const auto multiply = [&](auto count) {
      for (int lane = 0; lane < kPanelRows; lane += kLanes) {
        if constexpr (scalar::has_half_units(Bits)) {
          if (call.step < kUnitColumns) {
            LinearProduct<Bits, count, Planes, true>(call, halves.data(), panel, lane, v)
                .run(decoder);
            continue;
          }
        }
        LinearProduct<Bits, count, Planes, false>(call, nullptr, panel, lane, v).run(decoder);
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
