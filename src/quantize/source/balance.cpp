#include "quantize/source/balance.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/aligned.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// This many rows are summed together. The number is fixed, so that the sums do not depend on
// threads.
constexpr int64_t kChunkRows = 256;

Tensor float_tensor(int64_t rows, int64_t cols, std::shared_ptr<AlignedArray<float>> values) {
  Tensor tensor;
  tensor.format = &dense_format(DType::f32);
  tensor.rows = rows;
  tensor.cols = cols;
  tensor.data = std::as_bytes(std::span<const float>(values->data(), values->size()));
  tensor.owner = std::move(values);
  return tensor;
}

}  // namespace

void add_column_norms(const Tensor& matrix, ThreadPool& pool, std::span<double> norms) {
  const size_t cols = norms.size();
  const int64_t chunks = (matrix.rows + kChunkRows - 1) / kChunkRows;
  std::vector<std::vector<double>> partial(static_cast<size_t>(chunks));
  pool.for_each(chunks, [&](int64_t chunk) {
    std::vector<double> sums(cols, 0.0);
    std::vector<float> row(cols);
    const int64_t end = std::min(matrix.rows, (chunk + 1) * kChunkRows);
    for (int64_t r = chunk * kChunkRows; r < end; ++r) {
      decode_rows(matrix, r, r + 1, row.data());
      for (size_t c = 0; c < cols; ++c)
        sums[c] += double{row[c]} * double{row[c]};
    }
    partial[static_cast<size_t>(chunk)] = std::move(sums);
  });
  for (const auto& sums : partial) {
    for (size_t c = 0; c < cols; ++c)
      norms[c] += sums[c];
  }
}

std::vector<float> balance_scales(std::span<const double> squared_norms,
                                  std::span<const float> gain) {
  const size_t n = gain.size();
  std::vector<double> log_scale(n, 0.0);
  std::vector<bool> used(n, false);
  double sum = 0;
  size_t count = 0;
  for (size_t c = 0; c < n; ++c) {
    const double a = std::fabs(double{gain[c]});
    if (!(a > 0) || !(squared_norms[c] > 0)) continue;
    log_scale[c] = 0.5 * (std::log(a) - 0.5 * std::log(squared_norms[c]));
    if (!std::isfinite(log_scale[c])) continue;
    used[c] = true;
    sum += log_scale[c];
    ++count;
  }
  std::vector<float> scales(n, 1.0f);
  const double mean = count ? sum / static_cast<double>(count) : 0.0;
  for (size_t c = 0; c < n; ++c) {
    if (used[c]) scales[c] = static_cast<float>(std::exp(log_scale[c] - mean));
  }
  return scales;
}

void tie_channels(const Feeder& feeder, std::span<double> squared_norms, std::span<float> sizes) {
  if (feeder.repeat == 1) return;
  const auto rows = static_cast<size_t>(static_cast<int64_t>(sizes.size()) / feeder.repeat);
  std::vector<double> norms(rows, 0.0), squares(rows, 0.0);
  const auto row_of = [&](size_t c) {
    return static_cast<size_t>(feeder.row(static_cast<int64_t>(c)));
  };
  for (size_t c = 0; c < sizes.size(); ++c) {
    norms[row_of(c)] += squared_norms[c];
    squares[row_of(c)] += double{sizes[c]} * double{sizes[c]};
  }
  for (size_t c = 0; c < sizes.size(); ++c) {
    squared_norms[c] = norms[row_of(c)];
    sizes[c] = static_cast<float>(std::sqrt(squares[row_of(c)]));
  }
}

std::vector<float> feeder_factors(const Feeder& feeder, std::span<const float> scales,
                                  int64_t rows) {
  std::vector<float> factors(static_cast<size_t>(rows), 1.0f);
  for (size_t c = 0; c < scales.size(); ++c)
    factors.at(static_cast<size_t>(feeder.row(static_cast<int64_t>(c)))) = 1 / scales[c];
  return factors;
}

Tensor scale_columns(const Tensor& matrix, std::span<const float> scales) {
  if (matrix.cols != static_cast<int64_t>(scales.size())) {
    throw Error(ErrorCode::bad_input, "",
                "found " + std::to_string(matrix.cols) + " columns, expected " +
                    std::to_string(scales.size()));
  }
  auto buffer = std::make_shared<AlignedArray<float>>(static_cast<size_t>(matrix.rows) *
                                                      static_cast<size_t>(matrix.cols));
  decode_rows(matrix, 0, matrix.rows, buffer->data());
  for (size_t i = 0; i < buffer->size(); ++i)
    (*buffer)[i] *= scales[i % scales.size()];
  return float_tensor(matrix.rows, matrix.cols, std::move(buffer));
}

Tensor scale_rows(const Tensor& tensor, std::span<const float> factors, ThreadPool& pool) {
  const bool vector = tensor.rows == 1;
  const int64_t rows = vector ? tensor.cols : tensor.rows, width = vector ? 1 : tensor.cols;
  if (rows != static_cast<int64_t>(factors.size())) {
    throw Error(
        ErrorCode::bad_input, "",
        "found " + std::to_string(rows) + " rows, expected " + std::to_string(factors.size()));
  }
  auto buffer = std::make_shared<AlignedArray<float>>(static_cast<size_t>(rows * width));
  pool.for_each((tensor.rows + kChunkRows - 1) / kChunkRows, [&](int64_t chunk) {
    const int64_t begin = chunk * kChunkRows, end = std::min(tensor.rows, begin + kChunkRows);
    decode_rows(tensor, begin, end, buffer->data() + begin * tensor.cols);
  });
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < width; ++c)
      (*buffer)[static_cast<size_t>(r * width + c)] *= factors[static_cast<size_t>(r)];
  }
  return float_tensor(tensor.rows, tensor.cols, std::move(buffer));
}

}  // namespace walsh
