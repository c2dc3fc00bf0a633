#include "quantize/balance.h"

#include <cmath>
#include <mutex>

namespace walsh {
namespace {

constexpr int64_t kChunkRows = 256;  // rows summed together; fixed, so that the result is too

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

}  // namespace walsh
