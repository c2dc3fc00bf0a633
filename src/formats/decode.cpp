// Rows of any format: what every kernel is tested against.
#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "formats/codec.h"

namespace walsh {
namespace {

void decode_dense(const Tensor& t, int64_t row, float* out) {
  const int64_t first = row * t.cols;
  if (t.format->dtype == DType::f32) {
    std::memcpy(out, t.data.data() + 4 * first, static_cast<size_t>(4 * t.cols));
    return;
  }
  const bool bf16 = t.format->dtype == DType::bf16;
  for (int64_t i = 0; i < t.cols; ++i) {
    uint16_t h;
    std::memcpy(&h, t.data.data() + 2 * (first + i), 2);
    out[i] = bf16 ? bf16_to_f32(h) : f16_to_f32(h);
  }
}

}  // namespace

void decode_pass_row(const Tensor& tensor, int pass, int64_t row, float* out) {
  codec_of(*tensor.format).decode_row(tensor, pass, row, out);
}

void decode_rows(const Tensor& tensor, int64_t row_begin, int64_t row_end, float* out) {
  const int64_t cols = tensor.cols;
  if (tensor.format->dense) {
    for (int64_t row = row_begin; row < row_end; ++row, out += cols)
      decode_dense(tensor, row, out);
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
