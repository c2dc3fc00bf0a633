// Rows of a rotated matrix that are rounded column by column with error feedback
// (error_feedback.h). Errors reach the columns of their own block at once, those behind it when the
// block is done, as one matrix product (the lazy updates of GPTQ, Frantar et al. 2022).
#pragma once

#include <cstdint>

#include "base/aligned.h"
#include "quantize/feedback/error_feedback.h"
#include "quantize/feedback/multiply_add.h"

namespace walsh::detail {

class FeedbackStrip {
 public:
  static constexpr int64_t kRows = 32;    // at most; two rows of trellis tiles
  static constexpr int64_t kBlock = 128;  // columns

  explicit FeedbackStrip(const ErrorFeedback& feedback);

  int64_t size() const { return size_; }
  // x[row][size()], to be filled before start(rows).
  float* row(int64_t r) { return x_.data() + r * size_; }
  void start(int64_t rows);

  // Where column j of a row should be rounded to, all columns before it being set. Further columns
  // of the same block may be asked for: what they would be if nothing more were lost.
  float target(int64_t r, int64_t j) const {
    return x_[at(r, j)] + sums_[at(r, j)] * inverse_[static_cast<size_t>(j)];
  }
  // targets[count] of a block of columns that is rounded as a whole.
  void block_targets(int64_t r, int64_t j, int64_t count, float* targets) const;

  // Columns [j, j + count) of a row were rounded to values[count].
  void set(int64_t r, int64_t j, int64_t count, const float* values);
  // To be called when all rows are set up to the end of the block that ends before column `end`.
  void finish_block(int64_t end);

  // The factor of the rounded row that brings its weighted error to the least, (q H x) / (q H q);
  // 1 where nothing was rounded to anything but 0. After the last block.
  void row_factors(double* factors);
  // e H e^T of a row as it was set, after the last block.
  double weighted_error(int64_t r) const;

 private:
  size_t at(int64_t r, int64_t j) const { return static_cast<size_t>(r * size_ + j); }

  const ErrorFeedback& feedback_;
  MultiplyAdd multiply_;
  int64_t size_, rows_ = 0;
  AlignedArray<float> inverse_;         // [size], 1 / C_jj
  AlignedArray<float> x_, q_, errors_;  // [kRows][size]
  AlignedArray<float> sums_;            // [kRows][size]: sum over i < j of e_i C_ij
};

}  // namespace walsh::detail
