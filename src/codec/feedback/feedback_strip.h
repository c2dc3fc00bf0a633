// Holds rows of a rotated matrix that are rounded column by column with error feedback
// (error_feedback.h). Errors go to the columns of the same block at once. They go to the columns
// after it when the block is complete, in one matrix product (the lazy updates of GPTQ, Frantar et
// al. 2022).
#pragma once

#include <cstdint>

#include "base/aligned.h"
#include "codec/feedback/error_feedback.h"
#include "codec/feedback/multiply_add.h"

namespace walsh::detail {

class FeedbackStrip {
 public:
  // It has at most this many rows, two rows of trellis tiles.
  static constexpr int64_t kRows = 32;
  static constexpr int64_t kBlock = 128;  // A block has this many columns.

  explicit FeedbackStrip(const ErrorFeedback& feedback);

  int64_t size() const { return size_; }
  // Returns x[row][size()], which the caller fills before start(rows).
  float* row(int64_t r) { return x_.data() + r * size_; }
  void start(int64_t rows);

  // Returns the value that column j of a row should be rounded to, after all columns before it have
  // been set. Later columns of the same block may be asked for, too; they get the value that holds
  // if no further errors are made.
  float target(int64_t r, int64_t j) const {
    return x_[at(r, j)] + sums_[at(r, j)] * inverse_[static_cast<size_t>(j)];
  }
  // Computes targets[count] for a block of columns that is rounded as a whole.
  void block_targets(int64_t r, int64_t j, int64_t count, float* targets) const;

  // Sets columns [j, j + count) of a row to the rounded values[count].
  void set(int64_t r, int64_t j, int64_t count, const float* values);
  // Passes on the errors of a block. Call it when all rows are set up to the end of the block,
  // which is in front of column `end`.
  void finish_block(int64_t end);

  // Computes, after the last block, which factor of each rounded row minimizes its weighted error,
  // (q H x) / (q H q); 1 if the row was rounded to zeros.
  void row_factors(double* factors);
  // Returns e H e^T for the errors of a row, after the last block.
  double weighted_error(int64_t r) const;

 private:
  size_t at(int64_t r, int64_t j) const { return static_cast<size_t>(r * size_ + j); }

  const ErrorFeedback& feedback_;
  MultiplyAdd multiply_;
  int64_t size_, rows_ = 0;
  AlignedArray<float> inverse_;         // Its shape is [size]; it holds 1 / C_jj.
  AlignedArray<float> x_, q_, errors_;  // The shape of each is [kRows][size].
  // Its shape is [kRows][size]; it holds the sum over i < j of e_i C_ij.
  AlignedArray<float> sums_;
};

}  // namespace walsh::detail
