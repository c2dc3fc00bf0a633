// Specifies the product with plain weights.
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "kernels/isa_tables.h"

namespace walsh::ref {
namespace {

// Weights may be unaligned, because safetensors files do not align tensors.
template <typename Stored>
Stored load(const std::byte* p, int64_t i) {
  Stored v;
  std::memcpy(&v, p + i * static_cast<int64_t>(sizeof v), sizeof v);
  return v;
}

float weight(DType type, const std::byte* row, int64_t i) {
  switch (type) {
    case DType::f16:
      return f16_to_f32(load<uint16_t>(row, i));
    case DType::bf16:
      return bf16_to_f32(load<uint16_t>(row, i));
    case DType::f32:
      break;
  }
  return load<float>(row, i);
}

}  // namespace

void matmul_dense(DType type, const void* w, int64_t cols, const float* x, int64_t ldx, int64_t m,
                  float* y, int64_t ldy, int64_t row_begin, int64_t row_end) {
  for (int64_t r = row_begin; r < row_end; ++r) {
    const std::byte* row = static_cast<const std::byte*>(w) + r * cols * dtype_size(type);
    for (int64_t t = 0; t < m; ++t) {
      double sum = 0;
      for (int64_t c = 0; c < cols; ++c) {
        sum += double{weight(type, row, c)} * double{x[t * ldx + c]};
      }
      y[t * ldy + r] = static_cast<float>(sum);
    }
  }
}

}  // namespace walsh::ref
