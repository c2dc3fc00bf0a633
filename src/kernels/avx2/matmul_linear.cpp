// Multiplies int8 matrices on AVX2 for codes whose levels are equidistant. It multiplies the
// unsigned codes themselves and adds the first level times the sum of the activations, which gives
// the same integers. Codes of at most six bits cannot saturate vpmaddubsw, and several of its sums
// fit in 16 bits, so this takes fewer operations than matmul_maddubs.h.
#include <numeric>
#include <type_traits>
#include <vector>

#include "codec/scalar/simd/code_decoder.h"
#include "kernels/avx2/bytes.h"
#include "kernels/avx2/matmul_maddubs.h"

namespace walsh::avx2 {

namespace {

constexpr int64_t kHalfUnit = kUnitColumns / 2;

// Gives codes unchanged to a decoder, in place of tables that would be 0, 1, 2, ...
struct CodeBytes : Bytes {
  struct Table {
    explicit Table(const uint8_t*) {}
    WALSH_INLINE __m256i operator()(__m256i index) const {
      return _mm256_and_si256(index, _mm256_set1_epi8(0x0f));
    }
  };
};

// Only two- and three-bit codes need tables, to tell the fields of a nibble apart.
template <int Bits>
using UnsignedDecoder = CodeDecoder<Bits, std::conditional_t<(Bits >= 4), CodeBytes, Bytes>>;

// Holds what a step of a token adds to its products with every row.
struct Step {
  int32_t first;  // It is the first level times the sum of the activations.
  float scale;    // It is the scale of the last plane of the activations.
  float sum;      // It is the sum of the scaled activations.
};

// Returns the sum of a vector's activations in columns [begin, end).
int32_t sum_activations(const ActivationsI8& x, int64_t vector, int64_t begin, int64_t end) {
  if (end - begin < kUnitColumns)
    return std::accumulate(x.row(vector) + begin, x.row(vector) + end, 0);
  const int32_t* sums = x.sums.data() + vector * (x.cols / kUnitColumns);
  return std::accumulate(sums + begin / kUnitColumns, sums + end / kUnitColumns, 0);
}

// Returns the steps of all tokens, [token][step]. They are made once and used for all rows.
std::vector<Step> make_steps(const Call& call) {
  const ActivationsI8& x = call.x;
  std::vector<Step> steps;
  steps.reserve(static_cast<size_t>(call.m * ceil_div(x.cols, call.step)));
  for (int64_t t = 0; t < call.m; ++t) {
    for (int64_t c = 0; c < x.cols; c += call.step) {
      int32_t sum = 0;
      for (int64_t v = t * x.planes; v < (t + 1) * x.planes; ++v) {
        sum = sum * kPlaneRatio + sum_activations(x, v, c, std::min(c + call.step, x.cols));
      }
      const int64_t last = (t + 1) * x.planes - 1;
      const float scale = x.scales.data()[last * call.x_groups + call.x_group(c)];
      steps.push_back({sum * call.w.code->levels_i8[0], scale, static_cast<float>(sum) * scale});
    }
  }
  return steps;
}

// Multiplies rows lane .. lane + 7 of a panel with vectors v0 .. v0 + Vectors - 1. With HalfUnits,
// scales are per 16 columns. Members hold what would otherwise be read again after every store.
template <int Bits, int Vectors, int Planes, bool HalfUnits>
class LinearProduct {
 public:
  LinearProduct(const Call& call, const std::vector<Step>& steps, int64_t panel, int lane,
                int64_t v0)
      : call_(call),
        row_(panel * kPanelRows + lane),
        token_(v0 / Planes),
        step_(std::max(call.step, kUnitColumns)),
        words_(call.w.codes.data() + panel * panel_words(call.w, Bits) + lane),
        scales_(call.w.scales.data() + panel * call.w_groups * kPanelRows + lane),
        offsets_(call.w.offset_group == 0
                     ? nullptr
                     : call.w.offsets.data() + panel * call.z_groups * kPanelRows + lane),
        ldq_(call.x.stride),
        q_(call.x.row(v0)),
        ld_steps_(ceil_div(call.x.cols, call.step)),
        steps_(steps.data() + token_ * ld_steps_),
        offset_group_(call.w.offset_group == call.w.group ? 0 : call.w.offset_group),
        unit_(call.w.code->unit) {}

  void run(const UnsignedDecoder<Bits>& decoder) const {
    const int64_t cols = call_.w.cols;
    const uint32_t* words = words_;
    __m256 total[Vectors / Planes];
    unroll<Vectors / Planes>([&](auto t) WALSH_INLINE { total[t] = _mm256_setzero_ps(); });
    constexpr int kParts = HalfUnits ? 2 : 1;
    const Step* step = steps_;
    for (int64_t c = 0; c < cols; c += step_, step += kParts) {
      const int64_t end = std::min(c + step_, cols);
      __m256i sums[kParts][Vectors];
      unroll<kParts * Vectors>(
          [&](auto i) WALSH_INLINE { sums[i % kParts][i / kParts] = _mm256_setzero_si256(); });
      for (int64_t u = c; u < end; u += kUnitColumns) {
        add_unit(decoder, words, u, sums);
        words += Bits * kPanelRows;
      }
      add_step(c, step, sums[0], total);
      if constexpr (HalfUnits) add_step(c + kHalfUnit, step + 1, sums[1], total);
    }
    unroll<Vectors / Planes>([&](auto t) WALSH_INLINE {
      call_.store(token_ + t, total[t], [&](int i) { return row_ + i; });
    });
  }

 private:
  // The sums of pairs of products of this many quads fit in 16 bits together.
  static constexpr int kQuads = Bits == 4 ? 8 : Bits == 6 ? 2 : 4;

  // Adds the products of a unit's codes, separately for its halves if there are two parts.
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
  // Adds to the totals the integer sums of the step that begins at column c, times their scales.
  WALSH_INLINE void add_step(int64_t c, const Step* step, const __m256i (&sums)[Vectors],
                             __m256 (&total)[Vectors / Planes]) const {
    const int64_t group = HalfUnits ? c / kHalfUnit : call_.w_group(c);
    const __m256 scale = _mm256_mul_ps(f16(scales_ + group * kPanelRows), _mm256_set1_ps(unit_));
    __m256 offset = _mm256_setzero_ps();
    if (offsets_ != nullptr)
      offset = f16(offsets_ + (offset_group_ == 0 ? group : c / offset_group_) * kPanelRows);
    unroll<Vectors / Planes>([&](auto t) WALSH_INLINE {
      const Step& x = step[t * ld_steps_];
      const __m256i sum =
          _mm256_add_epi32(join_planes<Planes>(sums, t), _mm256_set1_epi32(x.first));
      total[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum),
                                 _mm256_mul_ps(scale, _mm256_set1_ps(x.scale)), total[t]);
      if (offsets_ != nullptr) total[t] = _mm256_fmadd_ps(offset, _mm256_set1_ps(x.sum), total[t]);
    });
  }

  const Call& call_;
  const int64_t row_, token_, step_;
  const uint32_t* const words_;
  const uint16_t* const scales_;
  const uint16_t* const offsets_;
  const int64_t ldq_;
  const int8_t* const q_;
  const int64_t ld_steps_;
  const Step* const steps_;
  const int64_t offset_group_;  // If it is 0, offsets have the groups of the scales.
  const float unit_;
};

template <int Bits, int Planes>
void multiply_linear_planes(const Call& call) {
  alignas(16) int8_t codes[16];
  for (int i = 0; i < 16; ++i)
    codes[i] = static_cast<int8_t>(i);
  const UnsignedDecoder<Bits> decoder(codes);
  const int64_t vectors = call.m * Planes;
  const std::vector<Step> steps = make_steps(call);
  for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel) {
    int64_t v = 0;
    const auto multiply = [&](auto count) {
      for (int lane = 0; lane < kPanelRows; lane += kLanes) {
        if constexpr (scalar::has_half_units(Bits)) {
          if (call.step < kUnitColumns) {
            LinearProduct<Bits, count, Planes, true>(call, steps, panel, lane, v).run(decoder);
            continue;
          }
        }
        LinearProduct<Bits, count, Planes, false>(call, steps, panel, lane, v).run(decoder);
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

void matmul_linear(const PanelMatmul& call) {
  scalar::with_cpu_width(call.w.code->bits, [&](auto bits) {
    if constexpr (bits < 8) {
      if (call.x.planes == 2) {
        multiply_linear_planes<bits, 2>(call);
      } else {
        multiply_linear_planes<bits, 1>(call);
      }
    }
  });
}

}  // namespace walsh::avx2
