#include "codec/feedback/input_statistics.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "codec/feedback/multiply_add.h"

namespace walsh {
namespace {

constexpr int64_t kRows = 48;  // A piece of work has this many rows of the sums.

}  // namespace

InputMoments::InputMoments(int64_t columns)
    : width(columns),
      sums(narrow<size_t>(
          checked_mul(static_cast<uint64_t>(columns), static_cast<uint64_t>(columns), "width"),
          "width")) {}

void InputMoments::add(const float* x, int64_t stride, int64_t rows, ThreadPool& pool) {
  const detail::MultiplyAdd multiply = detail::multiply_add();
  pool.for_each(ceil_div(width, kRows), [&](int64_t piece) {
    const int64_t begin = piece * kRows, count = std::min(kRows, width - begin);
    multiply({x + begin, 1, stride}, x + begin, stride, sums.data() + begin * width + begin, width,
             count, width - begin, rows);
  });
  tokens += rows;
}

std::vector<double> InputMoments::rms() const {
  std::vector<double> result;
  for (int64_t c = 0; c < width; ++c) {
    const double sum = sums[static_cast<size_t>(c * width + c)];
    result.push_back(tokens > 0 ? std::sqrt(std::max(0.0, sum) / static_cast<double>(tokens)) : 0);
  }
  return result;
}

}  // namespace walsh
