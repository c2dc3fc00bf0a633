#include "quantize/encode_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/aligned.h"
#include "base/checked.h"
#include "base/half.h"

namespace walsh {
namespace {

constexpr int64_t kRowsPerItem = 32;

// The arrays of a tensor in one heap buffer, writable while it is encoded.
struct Storage {
  AlignedArray<std::byte> bytes;
  std::vector<std::span<std::byte>> arrays;  // in the order of array_specs
};

std::shared_ptr<Storage> allocate(const Format& format, int64_t rows, int64_t cols) {
  const std::vector<ArraySpec> specs = array_specs(format, rows, cols);
  uint64_t total = 0;
  for (const ArraySpec& spec : specs)
    total = checked_add(total, checked_align(spec.bytes, 64, "shape"), "shape");
  auto storage = std::make_shared<Storage>();
  storage->bytes = AlignedArray<std::byte>(narrow<size_t>(total, "shape"));
  std::byte* next = storage->bytes.data();
  for (const ArraySpec& spec : specs) {
    storage->arrays.emplace_back(next, static_cast<size_t>(spec.bytes));
    next += checked_align(spec.bytes, 64, "shape");
  }
  return storage;
}

[[noreturn]] void refuse(std::string what, int64_t row, int64_t col) {
  throw Error(
      ErrorCode::bad_input, "",
      std::move(what) + " at row " + std::to_string(row) + ", column " + std::to_string(col));
}

void require_finite(const float* x, int64_t n, int64_t row) {
  for (int64_t i = 0; i < n; ++i) {
    if (std::isfinite(x[i])) continue;
    refuse(std::isnan(x[i]) ? "NaN" : "infinity", row, i);
  }
}

// Encodes rows of one tensor; shared by the threads, which write disjoint rows.
class TensorEncoder {
 public:
  TensorEncoder(const Tensor& tensor, const EncodeOptions& options, Storage& storage)
      : tensor_(tensor),
        format_(*tensor.format),
        options_(options),
        padded_(padded_cols(format_, tensor.cols)),
        arrays_(storage.arrays) {
    size_t next = 0;
    for (int pass = 0; pass < format_.passes; ++pass) {
      rotators_.emplace_back(tensor.rotation[pass], padded_);
      const ScalarCode& code = format_.code[pass];
      PassOutput& out = outputs_[pass];
      out.codes = arrays_[next++].data();
      out.scales = halves(next++);
      if (code.has_offset) out.offsets = halves(next++);
      if (code.sub_group != 0) out.sub_scales = halves(next++);
    }
  }

  // x[cols]: one source row. Leaves the difference to the decoded row in it.
  void encode(int64_t row, float* x) const {
    if (format_.dense) {
      convert(row, x);
      return;
    }
    const size_t padded = static_cast<size_t>(padded_);
    const auto buffer = std::make_unique_for_overwrite<float[]>(padded);
    for (int pass = 0; pass < format_.passes; ++pass) {
      const Rotator& rotator = rotators_[static_cast<size_t>(pass)];
      std::copy_n(x, tensor_.cols, buffer.get());
      std::fill(buffer.get() + tensor_.cols, buffer.get() + padded, 0.0f);
      rotator.apply(buffer.get());
      for (size_t i = 0; i < padded; ++i) {
        if (!std::isfinite(buffer[i])) refuse("value too large to rotate", row, 0);
      }
      encode_rows(format_.code[pass], options_, buffer.get(), 1, padded_, output(pass, row));
      decode_pass_row(tensor_, pass, row, buffer.get());
      rotator.invert(buffer.get());
      for (int64_t i = 0; i < tensor_.cols; ++i)
        x[i] -= buffer[static_cast<size_t>(i)];
    }
  }

 private:
  uint16_t* halves(size_t array) const {
    return reinterpret_cast<uint16_t*>(arrays_[array].data());
  }

  PassOutput output(int pass, int64_t row) const {
    const ScalarCode& code = format_.code[pass];
    PassOutput out = outputs_[pass];
    out.codes += row * code_bytes_per_row(code, padded_);
    out.scales += row * groups_per_row(code, padded_);
    if (code.has_offset) out.offsets += row * groups_per_row(code, padded_);
    if (code.sub_group != 0) out.sub_scales += row * sub_groups_per_row(code, padded_);
    return out;
  }

  void convert(int64_t row, float* x) const {
    const int64_t cols = tensor_.cols;
    if (format_.dtype == DType::f32) {
      std::memcpy(arrays_[0].data() + 4 * row * cols, x, static_cast<size_t>(4 * cols));
      std::fill_n(x, cols, 0.0f);
      return;
    }
    const bool bf16 = format_.dtype == DType::bf16;
    uint16_t* out = halves(0) + row * cols;
    for (int64_t i = 0; i < cols; ++i) {
      out[i] = bf16 ? f32_to_bf16(x[i]) : f32_to_f16(x[i]);
      const float back = bf16 ? bf16_to_f32(out[i]) : f16_to_f32(out[i]);
      if (std::isinf(back)) refuse("value too large for " + std::string(format_.name), row, i);
      x[i] -= back;
    }
  }

  const Tensor& tensor_;
  const Format& format_;
  const EncodeOptions& options_;
  int64_t padded_;
  std::span<const std::span<std::byte>> arrays_;
  PassOutput outputs_[2];
  std::vector<Rotator> rotators_;
};

double squared_length(const float* x, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i)
    total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

}  // namespace

Tensor encode_tensor(const Format& format, const Rotation (&rotation)[2],
                     const EncodeOptions& options, int64_t rows, int64_t cols, ReadRows read_rows,
                     ThreadPool& pool, double* squared_error, double* squared_norm) {
  const std::shared_ptr<Storage> storage = allocate(format, rows, cols);
  Tensor tensor;
  tensor.format = &format;
  tensor.rows = rows;
  tensor.cols = cols;
  for (int pass = 0; pass < format.passes; ++pass)
    tensor.rotation[pass] = rotation[pass];
  const std::vector<std::span<const std::byte>> arrays(storage->arrays.begin(),
                                                       storage->arrays.end());
  bind_arrays(tensor, arrays);
  tensor.owner = storage;

  const TensorEncoder encoder(tensor, options, *storage);
  std::vector<double> errors(static_cast<size_t>(rows)), norms(static_cast<size_t>(rows));
  pool.for_each((rows + kRowsPerItem - 1) / kRowsPerItem, [&](int64_t item) {
    const int64_t begin = item * kRowsPerItem, end = std::min(rows, begin + kRowsPerItem);
    std::vector<float> source(static_cast<size_t>((end - begin) * cols));
    read_rows(begin, end, source.data());
    for (int64_t row = begin; row < end; ++row) {
      float* x = source.data() + (row - begin) * cols;
      require_finite(x, cols, row);
      norms[static_cast<size_t>(row)] = squared_length(x, cols);
      encoder.encode(row, x);
      errors[static_cast<size_t>(row)] = squared_length(x, cols);
    }
  });
  double error = 0, norm = 0;
  for (size_t row = 0; row < errors.size(); ++row) {
    error += errors[row];
    norm += norms[row];
  }
  if (squared_error != nullptr) *squared_error = error;
  if (squared_norm != nullptr) *squared_norm = norm;
  return tensor;
}

}  // namespace walsh
