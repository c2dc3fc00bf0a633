// Holds the arguments of an int8 matmul on VNNI, and what differs between kinds of weights: how
// codes are decoded, how columns are grouped, and how a group's scale is applied.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/unroll.h"
#include "codec/scalar/simd/code_decoder.h"
#include "kernels/avx512/bytes.h"
#include "kernels/ops.h"
#include "kernels/panel_layout.h"

namespace walsh::avx512 {

using namespace detail;

namespace {  // The linker must not merge the copies with and without VBMI.

// Decoders add this bias to every level, for the unsigned operand of vpdpbusd.
inline constexpr int kSlabBias = 128;

// Products with up to this many vectors decode in registers (matmul_few.h).
inline constexpr int kFewVectors = 8;

// Outputs of more bytes than this do not stay in a core's second-level cache.
inline constexpr int64_t kCachedBytes = int64_t{1} << 20;

// Returns the integer sums for both planes of a token.
WALSH_INLINE inline __m512i join_planes(__m512i first, __m512i second) {
  return _mm512_add_epi32(_mm512_mullo_epi32(first, _mm512_set1_epi32(kPlaneRatio)), second);
}

// Holds the arguments, and values computed from them once, which avoids divisions in the inner
// loops.
struct VnniCall : PanelMatmul {
  bool past_caches;  // The outputs are written past the caches, which could not hold them.
  int64_t step, w_groups, z_groups, x_groups;
  int x_shift;
  float unit;

  VnniCall(const PanelMatmul& call)
      : PanelMatmul(call),
        past_caches(!accumulate && m * x.planes > kFewVectors && 4 * m * w.rows > kCachedBytes),
        step(w.trellis ? std::min<int64_t>(x.group, kF32Block) : flush_columns(w, x)),
        w_groups(ceil_div(w.cols, w.group)),
        z_groups(w.offset_group ? ceil_div(w.cols, w.offset_group) : 0),
        x_groups(x.groups()),
        x_shift(std::countr_zero(static_cast<unsigned>(x.group))),
        unit(level_unit(w)) {}

  WALSH_INLINE const int8_t* q(int64_t vector) const { return x.row(vector); }
  // Returns the scales of the vectors from `vector` on, which are x_groups apart.
  WALSH_INLINE const float* x_scales(int64_t vector, int64_t col) const {
    return x.scales.data() + vector * x_groups + (col >> x_shift);
  }
  WALSH_INLINE float x_scale(int64_t vector, int64_t col) const { return *x_scales(vector, col); }
  WALSH_INLINE int32_t x_sum(int64_t vector, int64_t col, int64_t columns) const {
    const int32_t* s = x.sums.data() + (vector * x.cols + col) / kUnitColumns;
    if (columns == 128) return s[0] + s[1] + s[2] + s[3];
    if (columns == kUnitColumns) return s[0];
    if (columns < kUnitColumns) return half_unit_sum(q(vector) + col);
    int32_t sum = 0;
    for (int64_t i = 0; i < columns / kUnitColumns; ++i)
      sum += s[i];
    return sum;
  }
  // Returns the sum of 16 activations.
  WALSH_INLINE static int32_t half_unit_sum(const int8_t* q) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
    const __m128i raised = _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80)));
    const __m128i halves = _mm_sad_epu8(raised, _mm_setzero_si128());
    return _mm_cvtsi128_si32(halves) + _mm_extract_epi16(halves, 4) - 16 * 128;
  }
  WALSH_INLINE __m512 offset(int64_t panel, int64_t group) const {
    return f16(w.offsets, panel * z_groups + group);
  }
  void store(int64_t panel, int64_t t, __m512 sum) const {
    float* out = y + t * ldy + panel * kPanelRows;
    const int64_t left = w.rows - panel * kPanelRows;
    const __mmask16 mask = static_cast<__mmask16>(left >= kPanelRows ? 0xffff : (1 << left) - 1);
    if (accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), sum);
    if (past_caches && mask == 0xffff && reinterpret_cast<uintptr_t>(out) % 64 == 0) {
      _mm512_stream_ps(out, sum);
    } else {
      _mm512_mask_storeu_ps(out, mask, sum);
    }
  }
  WALSH_INLINE static __m512 f16(const AlignedArray<uint16_t>& values, int64_t group) {
    const uint16_t* p = values.data() + group * kPanelRows;
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
};

// Describes weights that have scales per group of columns of a row.
class GroupedWeights {
 public:
  using Scaling = GroupedWeights;  // It is what does not depend on the decoder.

  // These return how many columns there are from c to the next flush of the integer sums, and how
  // many the group at c has.
  WALSH_INLINE static int64_t columns(const VnniCall& call, int64_t c) {
    return std::min(call.step, call.w.cols - c);
  }
  WALSH_INLINE static int64_t group_columns(const VnniCall& call, int64_t) { return call.w.group; }
  WALSH_INLINE static int64_t group(const VnniCall& call, int64_t c) { return c / call.w.group; }
  // Returns the factor of a group's integer sum, without the activations' scale.
  WALSH_INLINE static __m512 scale(const VnniCall& call, int64_t panel, int64_t group) {
    return _mm512_mul_ps(call.f16(call.w.scales, panel * call.w_groups + group),
                         _mm512_set1_ps(call.unit));
  }
  // Prefetches the scales of the same group of the next panel. They are too few at a time for the
  // hardware prefetcher to detect.
  WALSH_INLINE static void prefetch_scale(const VnniCall& call, int64_t panel, int64_t group) {
    const uint16_t* next =
        call.w.scales.data() + ((panel + 1) * call.w_groups + group) * kPanelRows;
    _mm_prefetch(reinterpret_cast<const char*>(std::min(next, call.w.scales.end() - 1)),
                 _MM_HINT_T0);
  }
  // Returns the results of the rows from their totals.
  WALSH_INLINE static __m512 finish(const VnniCall&, int64_t, __m512 total) { return total; }
};

template <int Bits, class Table, int Bias>
class ScalarWeights : public GroupedWeights {
 public:
  static constexpr int kBias = Bias;
  static constexpr int kUnitWords = Bits * kPanelRows;

  explicit ScalarWeights(const PanelMatrix& w) : decoder_(w.code->levels_i8) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, const Emit& emit) const {
    decoder_.decode(words, emit);
  }

 private:
  CodeDecoder<Bits, Bytes<Table, Bias>> decoder_;
};

template <class Decoder>
class ProductWeights : public GroupedWeights {
 public:
  static constexpr int kBias = kSlabBias;
  static constexpr int kUnitWords = kProductWords * kPanelRows;

  explicit ProductWeights(const PanelMatrix& w) : decoder_(w) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, const Emit& emit) const {
    decoder_.decode(words, 0, emit);
  }

 private:
  Decoder decoder_;
};

// Describes weights that have scales of column blocks and of rows.
class TrellisScaledWeights {
 public:
  using Scaling = TrellisScaledWeights;

  WALSH_INLINE static int64_t columns(const VnniCall& call, int64_t c) {
    return trellis_flush_columns(call.w, call.x, c);
  }
  WALSH_INLINE static int64_t group_columns(const VnniCall& call, int64_t c) {
    const auto rest = static_cast<uint64_t>(std::min(call.w.cols - c, kColumnBlock));
    return static_cast<int64_t>(std::bit_floor(rest));
  }
  static int64_t group(const VnniCall& call, int64_t c) { return column_block(c, call.w.cols); }
  WALSH_INLINE static __m512 scale(const VnniCall& call, int64_t panel, int64_t group) {
    if (!call.w.trellis->block_scales) return _mm512_set1_ps(call.w.col_factors.data()[group]);
    return call.f16(call.w.scales, panel * column_blocks(call.w.cols) + group);
  }
  WALSH_INLINE static void prefetch_scale(const VnniCall&, int64_t, int64_t) {}
  WALSH_INLINE static __m512 finish(const VnniCall& call, int64_t panel, __m512 total) {
    __m512 scale = _mm512_set1_ps(call.unit);
    if (!call.w.trellis->block_scales) scale = _mm512_mul_ps(call.f16(call.w.scales, panel), scale);
    const __m512i lanes =  // They are trellis_lane of rows 0..15.
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return _mm512_permutexvar_ps(lanes, _mm512_mul_ps(total, scale));
  }
};

template <class Decoder>
class TrellisWeights : public TrellisScaledWeights {
 public:
  static constexpr int kBias = Decoder::kBias;
  static constexpr int kUnitWords = Decoder::kUnitWords;

  explicit TrellisWeights(const PanelMatrix& w) : decoder_(*w.trellis) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, const Emit& emit) const {
    decoder_.decode(words, 0, emit);
  }

 private:
  Decoder decoder_;
};

}  // namespace

}  // namespace walsh::avx512
