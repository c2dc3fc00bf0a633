#include "allocate/noise.h"

#include <algorithm>
#include <cmath>

#include "base/aligned.h"
#include "base/random.h"

namespace walsh {
namespace {

// Replaces values[n], in the balanced basis, of one block of a row by their noisy version.
void disturb(float* values, int64_t n, double nmse, Random& random) {
  double squares = 0;
  for (int64_t c = 0; c < n; ++c)
    squares += static_cast<double>(values[c]) * static_cast<double>(values[c]);
  const double rms = std::sqrt(squares / static_cast<double>(n));
  const double sigma = rms * std::sqrt(nmse * (1 - nmse));
  for (int64_t c = 0; c < n; ++c)
    values[c] =
        static_cast<float>((1 - nmse) * static_cast<double>(values[c]) + sigma * random.normal());
}

}  // namespace

Tensor with_rounding_noise(const Tensor& matrix, std::span<const float> scales, int64_t block,
                           double nmse, uint64_t seed, ThreadPool& pool) {
  const int64_t cols = matrix.cols;
  auto buffer = std::make_shared<AlignedArray<float>>(static_cast<size_t>(matrix.rows * cols));
  const uint64_t base = Random(seed).next();  // close seeds give unrelated noise
  pool.for_ranges(matrix.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = buffer->data() + r * cols;
      decode_rows(matrix, r, r + 1, row);
      for (size_t c = 0; c < scales.size(); ++c)
        row[c] *= scales[c];
      Random random(base + static_cast<uint64_t>(r));
      for (int64_t at = 0; at < cols; at += block)
        disturb(row + at, std::min(block, cols - at), nmse, random);
      for (size_t c = 0; c < scales.size(); ++c)
        row[c] /= scales[c];
    }
  });
  Tensor result;
  result.format = &dense_format(DType::f32);
  result.rows = matrix.rows;
  result.cols = cols;
  result.data = std::as_bytes(std::span<const float>(buffer->data(), buffer->size()));
  result.owner = buffer;
  return result;
}

}  // namespace walsh
