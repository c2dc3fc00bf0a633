// Rounds a rotated matrix with errors fed back in both directions (docs/calibration.md). They go to
// the columns after a rounded tile, weighed by the moments of inputs, and to the rows below it,
// weighed by the moments of gradients at outputs.
//
// Source: YAQA (Tseng et al. 2025). With H_I = C C^T of the inputs and H_O = O O^T of the outputs,
// C and O upper triangular, errors E cause |O^T E C|^2. Tile (r, j) of O^T E C depends on the tiles
// up to r and j only, so it is best rounded from
//   X_rj + F_rj + O_rr^-T sum over p < r of O_pr^T (E_pj + F_pj)
// with F_rj = (sum over i < j of E_ri C_ij) C_jj^-1, the feedback of one side.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned.h"
#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "codec/feedback/error_feedback.h"
#include "codec/feedback/multiply_add.h"

namespace walsh::detail {

// Names `rows` rows from `row` on and `cols` columns from `col` on.
struct Block {
  int64_t row, rows, col, cols;
};

class TwoSidedMatrix {
 public:
  static constexpr int64_t kTile = 16;  // A tile has at most this many rows and columns.

  TwoSidedMatrix(const ErrorFeedback& inputs, const ErrorFeedback& outputs);

  int64_t rows() const { return outputs_.size(); }
  int64_t cols() const { return inputs_.size(); }
  // Returns x[row][cols()]. The caller fills all rows before it asks for anything else.
  float* row(int64_t r) { return x_.data() + r * cols(); }

  // Writes to targets[rows][cols] what a tile should be rounded to as a whole. All tiles to the
  // left of it and above it, and above those, must be set.
  void tile_targets(const Block& tile, float* targets);
  // Sets a tile to the values[rows][cols] that it was rounded to, after tile_targets.
  void set_tile(const Block& tile, const float* values);

  // Returns the factors of the rounded rows for which the weighted error of all rows together is
  // least. They solve one linear system. Nothing else can be asked for afterwards.
  std::vector<double> row_factors(ThreadPool& pool);

 private:
  friend class TwoSidedRows;
  size_t at(int64_t r, int64_t c) const { return static_cast<size_t>(r * cols() + c); }
  // add_left adds to sums[rows][ld] what the columns to the left of a block have lost, before
  // C_jj^-1; add_above adds what the rows above it have lost, before O_rr^-T.
  void add_left(const Block& block, float* sums, int64_t ld) const;
  void add_above(const Block& block, float* sums, int64_t ld) const;
  void multiply_factor(const AlignedArray<float>& a, AlignedArray<float>& c,
                       ThreadPool& pool) const;
  std::vector<double> right_side(ThreadPool& pool);
  AlignedArray<float> system(ThreadPool& pool) const;

  const ErrorFeedback& inputs_;
  const ErrorFeedback& outputs_;
  MultiplyAdd multiply_;
  AlignedArray<float> x_, errors_;  // The shape of each is [rows][cols].
  AlignedArray<float> fed_;         // Its shape is [rows][cols]; it holds E + F of what is set.
};

// Rounds a block of a TwoSidedMatrix row by row, column by column. Each thread needs its own.
class TwoSidedRows {
 public:
  static constexpr int64_t kRows = 32;  // A block has at most this many rows.

  // Blocks have at most `cols` columns in this matrix.
  TwoSidedRows(TwoSidedMatrix& matrix, int64_t cols);

  // Begins a block. All blocks to the left of it and above it must be set.
  void start(const Block& block);
  // Begins a row of the block. The rows above it must be set.
  void start_row(int64_t r);
  // Returns what a column of the row should be rounded to. All columns before it must be set; for
  // later columns of the block this is what they would be if nothing more were lost.
  float target(int64_t r, int64_t j) const {
    const size_t place = local(r, j);
    return matrix_.x_[matrix_.at(r, j)] + left_[place] * inverse_[static_cast<size_t>(j)] +
           above_[place];
  }
  void set(int64_t r, int64_t j, float value);
  // Writes what columns [j, j + count), which are rounded as a whole, should be rounded to.
  void block_targets(int64_t r, int64_t j, int64_t count, float* targets) const;

 private:
  size_t local(int64_t r, int64_t j) const {
    return static_cast<size_t>((r - block_.row) * width_ + j - block_.col);
  }

  TwoSidedMatrix& matrix_;
  int64_t width_;
  Block block_{};
  std::vector<float> inverse_;        // They are 1 / C_jj of all columns.
  AlignedArray<float> left_, above_;  // The shape of each is [kRows][width_].
};

// Describes blocks of a grid that do not depend on each other if every block needs those to the
// left of it and above it: (first_row + i, first_col - i) for i < count.
struct Diagonal {
  int64_t first_row, first_col, count;
};
std::vector<Diagonal> diagonals(int64_t rows, int64_t cols);

// Calls body for all blocks of a matrix, of up to TwoSidedRows::kRows rows and `block_cols`
// columns. Blocks to the left of a block and above it come first; others may run at the same time.
void for_blocks(const TwoSidedMatrix& matrix, int64_t block_cols, ThreadPool& pool,
                FunctionRef<void(const Block& block, int thread)> body);

}  // namespace walsh::detail
