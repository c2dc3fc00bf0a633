#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/checked.h"
#include "kernels/ops.h"
#include "kernels/simd/attention_blocks.h"

namespace walsh {

ActivationsI8::ActivationsI8(int64_t max_m, int64_t columns, int group_size, int plane_count)
    : cols(columns), group(group_size), planes(plane_count) {
  const auto vectors =
      checked_mul(static_cast<uint64_t>(max_m), static_cast<uint64_t>(planes), "activations");
  const auto of_vectors = [&](int64_t each) {
    return checked_mul(vectors, static_cast<uint64_t>(each), "activations");
  };
  q = AlignedArray<int8_t>(of_vectors(cols));
  scales = AlignedArray<float>(of_vectors(groups()));
  sums = AlignedArray<int32_t>(of_vectors(cols / detail::kUnitColumns));
}

// Sized for the blocks of the vector versions, or one weight per position for ref.
int64_t attention_scratch(int64_t m, int64_t end_position, int head_dim) {
  (void)m;  // queries are taken in blocks of a fixed size
  return std::max(simd::AttentionBlocks::floats(head_dim), (end_position + 15) / 16 * 16);
}

void prepare_input(const Ops& ops, const InputTransform& transform, const float* x,
                   const float* gain, float eps, float* row, ActivationsI8* quantized, int64_t t) {
  const auto width = static_cast<size_t>(transform.width);
  if (gain) {
    ops.rms_norm(x, gain, transform.width, eps, row);
  } else if (row != x) {
    std::memcpy(row, x, width * sizeof(float));
  }
  std::fill(row + transform.width, row + transform.cols, 0.0f);
  if (transform.rotator) transform.rotator->apply(row);
  if (quantized) ops.quantize_i8(row, *quantized, t);
}

}  // namespace walsh
