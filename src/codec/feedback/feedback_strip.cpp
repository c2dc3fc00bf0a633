#include "codec/feedback/feedback_strip.h"

#include <algorithm>

#include "base/stop.h"

namespace walsh::detail {

FeedbackStrip::FeedbackStrip(const ErrorFeedback& feedback)
    : feedback_(feedback),
      multiply_(multiply_add()),
      size_(feedback.size()),
      inverse_(static_cast<size_t>(size_)),
      x_(static_cast<size_t>(kRows * size_)),
      q_(x_.size()),
      errors_(x_.size()),
      sums_(x_.size()) {
  for (int64_t j = 0; j < size_; ++j)
    inverse_[static_cast<size_t>(j)] = 1 / feedback_.row(j)[j];
}

void FeedbackStrip::start(int64_t rows) {
  rows_ = rows;
  std::fill_n(sums_.data(), rows * size_, 0.0f);
}

// Solves t C_JJ = g with an upper triangular C_JJ, from the first column on.
void FeedbackStrip::block_targets(int64_t r, int64_t j, int64_t count, float* targets) const {
  std::copy_n(sums_.data() + at(r, j), count, targets);
  for (int64_t i = 0; i < count; ++i) {
    targets[i] *= inverse_[static_cast<size_t>(j + i)];
    const float* factor = feedback_.row(j + i) + j;
    for (int64_t l = i + 1; l < count; ++l)
      targets[l] -= targets[i] * factor[l];
  }
  for (int64_t i = 0; i < count; ++i)
    targets[i] += x_[at(r, j + i)];
}

void FeedbackStrip::set(int64_t r, int64_t j, int64_t count, const float* values) {
  for (int64_t i = 0; i < count; ++i) {
    q_[at(r, j + i)] = values[i];
    errors_[at(r, j + i)] = x_[at(r, j + i)] - values[i];
  }
  const int64_t end = std::min(size_, j / kBlock * kBlock + kBlock);
  for (int64_t i = j; i < j + count; ++i) {
    const float error = errors_[at(r, i)];
    const float* factor = feedback_.row(i);
    float* sums = sums_.data() + r * size_;
    for (int64_t l = i + 1; l < end; ++l)
      sums[l] += error * factor[l];
  }
}

void FeedbackStrip::finish_block(int64_t end) {
  check_stop();
  if (end == size_) return;
  const int64_t begin = (end - 1) / kBlock * kBlock;
  multiply_({errors_.data() + begin, size_, 1}, feedback_.row(begin) + end, size_,
            sums_.data() + end, size_, rows_, size_ - end, end - begin);
}

void FeedbackStrip::row_factors(double* factors) {
  // `products` holds q C, and x C is its sum with e C.
  AlignedArray<float> products(x_.size());
  for (int64_t begin = 0; begin < size_; begin += kBlock) {
    const int64_t count = std::min(kBlock, size_ - begin);
    multiply_({q_.data() + begin, size_, 1}, feedback_.row(begin) + begin, size_,
              products.data() + begin, size_, rows_, size_ - begin, count);
  }
  for (int64_t r = 0; r < rows_; ++r) {
    double eq = 0, qq = 0;
    for (int64_t j = 0; j < size_; ++j) {
      const double q = products[at(r, j)];
      const double e =
          double{sums_[at(r, j)]} + double{errors_[at(r, j)]} * double{feedback_.row(j)[j]};
      eq += e * q;
      qq += q * q;
    }
    factors[r] = qq > 0 ? 1 + eq / qq : 1;
  }
}

double FeedbackStrip::weighted_error(int64_t r) const {
  double sum = 0;
  for (int64_t j = 0; j < size_; ++j) {
    const double e =
        double{sums_[at(r, j)]} + double{errors_[at(r, j)]} * double{feedback_.row(j)[j]};
    sum += e * e;
  }
  return sum;
}

}  // namespace walsh::detail
