#include "formats/tensor.h"

#include <limits>

#include "base/checked.h"

namespace walsh {
namespace {

void check_shape(int64_t rows, int64_t cols) {
  // The margin keeps padding and rounding to groups within int64_t.
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max() / 16;
  if (rows < 1 || cols < 1 || rows > kLargest || cols > kLargest) {
    throw Error(ErrorCode::bad_input, "shape",
                "[" + std::to_string(rows) + ", " + std::to_string(cols) + "] is not usable");
  }
}

uint64_t array_bytes(int64_t rows, int64_t per_row, uint64_t element) {
  const uint64_t row = checked_mul(static_cast<uint64_t>(per_row), element, "shape");
  return checked_mul(static_cast<uint64_t>(rows), row, "shape");
}

}  // namespace

std::vector<ArraySpec> array_specs(const Format& format, int64_t rows, int64_t cols) {
  check_shape(rows, cols);
  const int64_t padded = padded_cols(format, cols);
  std::vector<ArraySpec> specs;
  if (format.dense) {
    const uint64_t size = static_cast<uint64_t>(dtype_size(format.dtype));
    specs.push_back({"", array_bytes(rows, cols, size)});
    return specs;
  }
  for (int pass = 0; pass < format.passes; ++pass) {
    const ScalarCode& code = format.code[pass];
    const std::string suffix = pass == 0 ? "" : "2";
    const int64_t groups = groups_per_row(code, padded);
    specs.push_back({"codes" + suffix, array_bytes(rows, code_bytes_per_row(code, padded), 1)});
    specs.push_back({"scales" + suffix, array_bytes(rows, groups, 2)});
    if (code.has_offset) specs.push_back({"offsets" + suffix, array_bytes(rows, groups, 2)});
    if (code.sub_group != 0) {
      specs.push_back(
          {"sub_scales" + suffix, array_bytes(rows, sub_groups_per_row(code, padded), 2)});
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
    const ScalarCode& code = tensor.format->code[pass];
    PassArrays& out = tensor.pass[pass];
    out.codes = arrays[next++];
    out.scales = arrays[next++];
    if (code.has_offset) out.offsets = arrays[next++];
    if (code.sub_group != 0) out.sub_scales = arrays[next++];
  }
}

uint64_t tensor_bytes(const Format& format, int64_t rows, int64_t cols) {
  uint64_t total = 0;
  for (const ArraySpec& spec : array_specs(format, rows, cols))
    total = checked_add(total, spec.bytes, "shape");
  return total;
}

double nominal_bits(const Format& format) {
  constexpr int64_t kCols = 1 << 16;
  return 8.0 * static_cast<double>(tensor_bytes(format, 1, kCols)) / static_cast<double>(kCols);
}

}  // namespace walsh
