#include "quantize/scalar/encode_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/half.h"
#include "quantize/scalar/scalar_passes.h"

namespace walsh::detail {
namespace {

constexpr int64_t kRowsPerItem = 32;

// Encodes rows of one dense or scalar tensor; shared by the threads, which write disjoint rows.
class TensorEncoder {
 public:
  TensorEncoder(const Tensor& tensor, const EncodeOptions& options, const TensorStorage& storage)
      : tensor_(tensor),
        format_(*tensor.format),
        options_(options),
        passes_(tensor, storage),
        storage_(storage) {}

  // x[cols]: one source row. Leaves the difference to the decoded row in it.
  void encode(int64_t row, float* x) const {
    if (format_.dense) {
      convert(row, x);
      return;
    }
    const auto buffer =
        std::make_unique_for_overwrite<float[]>(static_cast<size_t>(passes_.padded()));
    for (int pass = 0; pass < format_.passes; ++pass)
      passes_.encode(pass, options_, row, buffer.get(), x);
  }

 private:
  void convert(int64_t row, float* x) const {
    const int64_t cols = tensor_.cols;
    if (format_.dtype == DType::f32) {
      std::memcpy(storage_.arrays[0].data() + 4 * row * cols, x, static_cast<size_t>(4 * cols));
      std::fill_n(x, cols, 0.0f);
      return;
    }
    const bool bf16 = format_.dtype == DType::bf16;
    uint16_t* out = storage_.halves(0) + row * cols;
    for (int64_t i = 0; i < cols; ++i) {
      out[i] = bf16 ? f32_to_bf16(x[i]) : f32_to_f16(x[i]);
      const float back = bf16 ? bf16_to_f32(out[i]) : f16_to_f32(out[i]);
      if (std::isinf(back))
        refuse_value("value too large for " + std::string(format_.name), row, i);
      x[i] -= back;
    }
  }

  const Tensor& tensor_;
  const Format& format_;
  const EncodeOptions& options_;
  ScalarPasses passes_;
  const TensorStorage& storage_;
};

}  // namespace

void encode_rows(const Tensor& tensor, const EncodeOptions& options, ReadRows read_rows,
                 const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors) {
  const TensorEncoder encoder(tensor, options, storage);
  const int64_t rows = tensor.rows, cols = tensor.cols;
  pool.for_each((rows + kRowsPerItem - 1) / kRowsPerItem, [&](int64_t item) {
    const int64_t begin = item * kRowsPerItem, end = std::min(rows, begin + kRowsPerItem);
    std::vector<float> source(static_cast<size_t>((end - begin) * cols));
    read_finite_rows(read_rows, begin, end, cols, source.data());
    for (int64_t row = begin; row < end; ++row) {
      float* x = source.data() + (row - begin) * cols;
      const double norm = squared_length(x, cols);
      encoder.encode(row, x);
      errors.set(row, squared_length(x, cols), norm);
    }
  });
}

}  // namespace walsh::detail
