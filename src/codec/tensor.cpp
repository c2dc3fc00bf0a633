#include "codec/tensor.h"

#include <limits>

#include "base/checked.h"
#include "codec/codec.h"

namespace walsh {
namespace {

void check_shape(int64_t rows, int64_t cols) {
  // This leaves a margin, so that padding and rounding up to groups stay within int64_t.
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max() / 16;
  if (rows < 1 || cols < 1 || rows > kLargest || cols > kLargest) {
    throw Error(ErrorCode::bad_input, "shape",
                "[" + std::to_string(rows) + ", " + std::to_string(cols) + "] is not usable");
  }
}

using detail::bytes_of;

}  // namespace

std::vector<PassField> pass_fields(const Format& format, int pass, int64_t rows, int64_t cols) {
  check_shape(rows, cols);
  return codec_of(format).fields(format, pass, rows, padded_cols(format, cols));
}

std::vector<ArraySpec> array_specs(const Format& format, int64_t rows, int64_t cols) {
  check_shape(rows, cols);
  std::vector<ArraySpec> specs;
  if (format.dense) {
    const uint64_t row = bytes_of(cols, static_cast<uint64_t>(dtype_size(format.dtype)));
    specs.push_back({"", bytes_of(rows, row), static_cast<uint64_t>(rows)});
    return specs;
  }
  for (int pass = 0; pass < format.passes; ++pass) {
    for (const PassField& field : pass_fields(format, pass, rows, cols)) {
      specs.push_back({std::string(field.suffix) + (pass == 0 ? "" : "2"),
                       bytes_of(field.rows, field.row_bytes), static_cast<uint64_t>(field.rows)});
    }
  }
  return specs;
}

void bind_arrays(Tensor& tensor, std::span<const std::span<const std::byte>> arrays) {
  const std::vector<ArraySpec> specs = array_specs(*tensor.format, tensor.rows, tensor.cols);
  if (arrays.size() != specs.size()) {
    throw Error(
        ErrorCode::bad_input, std::string(tensor.format->name),
        std::to_string(arrays.size()) + " arrays, expected " + std::to_string(specs.size()));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (arrays[i].size() == specs[i].bytes) continue;
    throw Error(
        ErrorCode::bad_input, specs[i].suffix.empty() ? "data" : specs[i].suffix,
        std::to_string(arrays[i].size()) + " bytes, expected " + std::to_string(specs[i].bytes));
  }
  if (tensor.format->dense) {
    tensor.data = arrays[0];
    return;
  }
  size_t next = 0;
  for (int pass = 0; pass < tensor.format->passes; ++pass) {
    for (const PassField& field : pass_fields(*tensor.format, pass, tensor.rows, tensor.cols))
      tensor.pass[pass].*field.array = arrays[next++];
  }
}

uint64_t tensor_bytes(const Format& format, int64_t rows, int64_t cols) {
  uint64_t total = 0;
  for (const ArraySpec& spec : array_specs(format, rows, cols))
    total = checked_add(total, spec.bytes, "shape");
  return total;
}

double nominal_bits(const Format& format) {
  constexpr int64_t kRows = 1 << 12, kCols = 1 << 16;
  return 8.0 * static_cast<double>(tensor_bytes(format, kRows, kCols)) /
         static_cast<double>(kRows * kCols);
}

}  // namespace walsh
