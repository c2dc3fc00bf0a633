// Dequantizes rows of any format. All kernels are tested against this code.
#include <algorithm>

#include "codec/codec.h"

namespace walsh {

void decode_pass_row(const Tensor& tensor, int pass, int64_t row, float* out) {
  codec_of(*tensor.format).decode_row(tensor, pass, row, out);
}

void decode_rows(const Tensor& tensor, int64_t row_begin, int64_t row_end, float* out) {
  const int64_t cols = tensor.cols;
  if (tensor.format->dense) {
    for (int64_t row = row_begin; row < row_end; ++row, out += cols)
      decode_pass_row(tensor, 0, row, out);
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
