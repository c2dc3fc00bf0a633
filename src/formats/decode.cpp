// Dequantizes rows of any format. All kernels are tested against this.
#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "formats/codec.h"
#include "formats/dense.h"

namespace walsh {

void dense_to_f32(DType type, const void* values, int64_t count, float* out) {
  if (type == DType::f32) {
    std::memcpy(out, values, static_cast<size_t>(4 * count));
    return;
  }
  const auto* bytes = static_cast<const std::byte*>(values);
  const bool bf16 = type == DType::bf16;
  for (int64_t i = 0; i < count; ++i) {
    uint16_t h;
    std::memcpy(&h, bytes + 2 * i, 2);
    out[i] = bf16 ? bf16_to_f32(h) : f16_to_f32(h);
  }
}

void decode_pass_row(const Tensor& tensor, int pass, int64_t row, float* out) {
  codec_of(*tensor.format).decode_row(tensor, pass, row, out);
}

void decode_rows(const Tensor& tensor, int64_t row_begin, int64_t row_end, float* out) {
  const int64_t cols = tensor.cols;
  if (tensor.format->dense) {
    const DType type = tensor.format->dtype;
    const std::byte* first = tensor.data.data() + row_begin * cols * dtype_size(type);
    dense_to_f32(type, first, (row_end - row_begin) * cols, out);
    return;
  }
  const int64_t padded = padded_cols(*tensor.format, cols);
  std::vector<Rotator> rotators;
  for (int pass = 0; pass < tensor.format->passes; ++pass)
    rotators.emplace_back(tensor.rotation[pass], padded);
  std::vector<float> buffer(static_cast<size_t>(padded));
  for (int64_t row = row_begin; row < row_end; ++row, out += cols) {
    for (int pass = 0; pass < tensor.format->passes; ++pass) {
      decode_pass_row(tensor, pass, row, buffer.data());
      rotators[static_cast<size_t>(pass)].invert(buffer.data());
      if (pass == 0) {
        std::copy_n(buffer.data(), cols, out);
      } else {
        for (int64_t i = 0; i < cols; ++i)
          out[i] += buffer[static_cast<size_t>(i)];
      }
    }
  }
}

}  // namespace walsh
