// Gives trellis codes the form of weights of the int8 matmul on AVX2.
#pragma once

#include "codec/trellis/avx2/trellis_words.h"
#include "kernels/avx2/matmul_maddubs.h"
#include "kernels/trellis_parts.h"

namespace walsh::avx2 {

namespace {  // Each file has a copy.

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

template <TrellisRule Rule>
void multiply_trellis(const Call& call) {
  with_steps_among<TrellisSteps<4, Rule>, TrellisSteps<5, Rule>, TrellisSteps<6, Rule>,
                   TrellisSteps<7, Rule>, TrellisSteps<8, Rule>>(
      *call.w.trellis, [&](auto steps) { multiply_planes<TrellisWeights<decltype(steps)>>(call); });
}

}  // namespace

}  // namespace walsh::avx2
