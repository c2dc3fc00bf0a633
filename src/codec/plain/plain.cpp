// Implements the codec of plain weights, which are stored as f32, f16 or bf16, row by row.
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "codec/codec.h"
#include "codec/encode/encode_source.h"
#include "codec/plain/dense.h"
#include "walsh/error.h"

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

namespace {

// A dense tensor has no passes; its only array is Tensor::data.
std::vector<PassField> fields(const Format&, int, int64_t, int64_t) {
  return {};
}

void decode_row(const Tensor& tensor, int, int64_t row, float* out) {
  const DType type = tensor.format->dtype;
  dense_to_f32(type, tensor.data.data() + row * tensor.cols * dtype_size(type), tensor.cols, out);
}

// Converts x[cols] and leaves the difference between x and the stored numbers in x.
void convert_row(const Tensor& tensor, const detail::TensorStorage& storage, int64_t row,
                 float* x) {
  const Format& format = *tensor.format;
  const int64_t cols = tensor.cols;
  if (format.dtype == DType::f32) {
    std::memcpy(storage.arrays[0].data() + 4 * row * cols, x, static_cast<size_t>(4 * cols));
    std::fill_n(x, cols, 0.0f);
    return;
  }
  const bool bf16 = format.dtype == DType::bf16;
  uint16_t* out = storage.halves(0) + row * cols;
  for (int64_t i = 0; i < cols; ++i) {
    out[i] = bf16 ? f32_to_bf16(x[i]) : f32_to_f16(x[i]);
    const float back = bf16 ? bf16_to_f32(out[i]) : f16_to_f32(out[i]);
    if (std::isinf(back))
      detail::refuse_value("value too large for " + std::string(format.name), row, i);
    x[i] -= back;
  }
}

void encode(const detail::EncodeCall& call) {
  detail::encode_each_row(
      call, [&](int64_t row, float* x) { convert_row(call.tensor, call.storage, row, x); });
}

bool knows(const Format&, Kernel kernel) {
  return kernel == Kernel::cpu_products || kernel == Kernel::gpu_products;
}

OpCount count(const Format&, int64_t rows, int64_t cols, int) {
  OpCount ops;
  ops.multiplications = ops.additions = static_cast<uint64_t>(rows * cols);
  return ops;
}

}  // namespace

const Codec kPlainCodec = {
    .name = "plain",
    .fields = fields,
    .decode_row = decode_row,
    .scales = [](const Tensor&, int, int64_t, int64_t, uint16_t (&)[2]) { return 0; },
    .level_rms = [](const Format&, int) { return 1.0; },
    .encode = encode,
    .cost = [](const Format&, const EncodeOptions&) { return 2.0; },
    .searches = [](const Format&, const EncodeOptions&) { return false; },
    .fits_scales = [](const Format&) { return false; },
    .has_kernel = knows,
    .count = count,
};

}  // namespace walsh
