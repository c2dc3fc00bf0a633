#include "codec/encode/encode_source.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "base/stop.h"
#include "walsh/error.h"

namespace walsh::detail {
namespace {

constexpr int64_t kCheckedValues = 1 << 16;  // This many values are checked together.
constexpr int64_t kRowsPerItem = 32;

}  // namespace

std::shared_ptr<TensorStorage> allocate_tensor(const Format& format, int64_t rows, int64_t cols) {
  const std::vector<ArraySpec> specs = array_specs(format, rows, cols);
  uint64_t total = 0;
  for (const ArraySpec& spec : specs)
    total = checked_add(total, checked_align(spec.bytes, 64, "shape"), "shape");
  auto storage = std::make_shared<TensorStorage>();
  storage->bytes = AlignedArray<std::byte>(narrow<size_t>(total, "shape"));
  std::byte* next = storage->bytes.data();
  for (const ArraySpec& spec : specs) {
    storage->arrays.emplace_back(next, static_cast<size_t>(spec.bytes));
    next += checked_align(spec.bytes, 64, "shape");
  }
  return storage;
}

void refuse_value(std::string what, int64_t row, int64_t col) {
  throw Error(
      ErrorCode::bad_input, "",
      std::move(what) + " at row " + std::to_string(row) + ", column " + std::to_string(col));
}

void read_finite_rows(ReadRows read_rows, int64_t begin, int64_t end, int64_t cols, float* out) {
  read_rows(begin, end, out);
  for (int64_t row = begin; row < end; ++row, out += cols) {
    for (int64_t i = 0; i < cols; ++i) {
      if (std::isfinite(out[i])) continue;
      refuse_value(std::isnan(out[i]) ? "NaN" : "infinity", row, i);
    }
  }
}

void refuse_not_finite(const Tensor& tensor, ThreadPool& pool) {
  const int64_t per_item = std::max<int64_t>(1, kCheckedValues / tensor.cols);
  pool.for_each((tensor.rows + per_item - 1) / per_item, [&](int64_t item) {
    const int64_t begin = item * per_item, end = std::min(tensor.rows, begin + per_item);
    std::vector<float> values(static_cast<size_t>((end - begin) * tensor.cols));
    const auto read = [&](int64_t first, int64_t last, float* out) {
      decode_rows(tensor, first, last, out);
    };
    read_finite_rows(read, begin, end, tensor.cols, values.data());
  });
}

void rotate_row(const Rotator& rotator, const float* x, int64_t cols, int64_t row, float* out) {
  check_stop();  // Every encoder calls this once per row.
  std::copy_n(x, cols, out);
  std::fill(out + cols, out + rotator.size(), 0.0f);
  rotator.apply(out);
  for (int64_t i = 0; i < rotator.size(); ++i) {
    if (!std::isfinite(out[i])) refuse_value("value too large to rotate", row, 0);
  }
}

double squared_length(const float* x, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i)
    total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

void ErrorSum::total(double* squared_error, double* squared_norm) const {
  if (squared_error) *squared_error = std::accumulate(errors_.begin(), errors_.end(), 0.0);
  if (squared_norm) *squared_norm = std::accumulate(norms_.begin(), norms_.end(), 0.0);
}

void subtract_decoded(const Tensor& tensor, int pass, const Rotator& rotator, int64_t row,
                      float* buffer, float* x) {
  decode_pass_row(tensor, pass, row, buffer);
  rotator.invert(buffer);
  for (int64_t i = 0; i < tensor.cols; ++i)
    x[i] -= buffer[i];
}

void for_each_row(const EncodeCall& call, FunctionRef<void(int64_t row, float* x)> body) {
  const int64_t rows = call.tensor.rows, cols = call.tensor.cols;
  call.pool.for_each(ceil_div(rows, kRowsPerItem), [&](int64_t item) {
    const int64_t begin = item * kRowsPerItem, end = std::min(rows, begin + kRowsPerItem);
    std::vector<float> source(static_cast<size_t>((end - begin) * cols));
    read_finite_rows(call.read_rows, begin, end, cols, source.data());
    for (int64_t row = begin; row < end; ++row)
      body(row, source.data() + (row - begin) * cols);
  });
}

void encode_each_row(const EncodeCall& call, FunctionRef<void(int64_t row, float* x)> encode) {
  for_each_row(call, [&](int64_t row, float* x) {
    const double norm = squared_length(x, call.tensor.cols);
    encode(row, x);
    call.errors.set(row, squared_length(x, call.tensor.cols), norm);
  });
}

void measure_rows(const EncodeCall& call, const Rotator& rotator, int64_t begin, int64_t end) {
  const int64_t cols = call.tensor.cols;
  std::vector<float> source(static_cast<size_t>((end - begin) * cols));
  std::vector<float> decoded(static_cast<size_t>(rotator.size()));
  read_finite_rows(call.read_rows, begin, end, cols, source.data());
  for (int64_t row = begin; row < end; ++row) {
    float* x = source.data() + (row - begin) * cols;
    const double norm = squared_length(x, cols);
    subtract_decoded(call.tensor, 0, rotator, row, decoded.data(), x);
    call.errors.set(row, squared_length(x, cols), norm);
  }
}

}  // namespace walsh::detail
