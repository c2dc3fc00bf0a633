// Multiplies int8 matrices on AVX2. Trellis codes have a file of their own, and so have scalar
// codes with equidistant levels.
#include "codec/product/avx2/product_words.h"
#include "codec/scalar/simd/code_decoder.h"
#include "kernels/avx2/bytes.h"
#include "kernels/avx2/matmul_maddubs.h"

namespace walsh::avx2 {

namespace {

// Holds what weights with a scale per row and group of columns have in common.
struct GroupedWeights {
  // Returns the number of columns from c to the next flush of the integer sums.
  WALSH_INLINE static int64_t columns(const Call& call, int64_t c) {
    return std::min(call.step, call.w.cols - c);
  }
  WALSH_INLINE static __m256 scale(const Call& call, int64_t panel, int lane, int64_t c) {
    return _mm256_mul_ps(call.f16(call.w.scales, panel * call.w_groups + call.w_group(c), lane),
                         _mm256_set1_ps(call.unit));
  }
  static void store(const Call& call, int64_t panel, int lane, int64_t t, __m256 total) {
    call.store(t, total, [&](int i) { return panel * kPanelRows + lane + i; });
  }
};

template <int Bits>
class ScalarWeights : public GroupedWeights {
 public:
  static constexpr int kUnitWords = Bits * kPanelRows;
  static constexpr int64_t kMostDirect = 0;

  explicit ScalarWeights(const PanelMatrix& w) : decoder_(w.code->levels_i8) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, int lane, const Emit& emit) const {
    decoder_.decode(words + lane, emit);
  }

 private:
  CodeDecoder<Bits, Bytes> decoder_;
};

class ProductWeights : public GroupedWeights {
 public:
  static constexpr int kUnitWords = kProductWords * kPanelRows;
  static constexpr int64_t kMostDirect = 4;

  explicit ProductWeights(const PanelMatrix& w) : decoder_(w) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, int lane, const Emit& emit) const {
    decoder_.decode(words, lane, emit);
  }

 private:
  GatherProductDecoder<ProductWords> decoder_;
};

}  // namespace

void matmul_i8(const PanelMatmul& call) {
  if (call.w.trellis) return matmul_trellis(call);
  if (call.w.product) return multiply_planes<ProductWeights>(call);
  if (call.w.code->bits < 8 && is_equidistant(*call.w.code)) return matmul_linear(call);
  scalar::with_width(call.w.code->bits,
                     [&](auto bits) { multiply_planes<ScalarWeights<bits>>(call); });
}

}  // namespace walsh::avx2
