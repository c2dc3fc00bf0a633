#include "codec/feedback/two_sided.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/stop.h"
#include "codec/feedback/cholesky.h"

namespace walsh::detail {
namespace {

constexpr int64_t kPiece = 32;  // A piece of work has this many rows.
// This many columns of the factor or the system are processed at a time.
constexpr int64_t kStrip = 128;
constexpr double kSystemDamping = 1e-6, kHopelessDamping = 1e12;

// Transposes from[n][ld] to to[k][n].
void copy_transposed(const float* from, int64_t ld, int64_t n, int64_t k, float* to) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t t = 0; t < k; ++t)
      to[t * n + i] = from[i * ld + t];
  }
}

// Solves U U^T d = b with an upper triangular U.
std::vector<double> solve(const float* u, int64_t n, std::vector<double> b) {
  for (int64_t i = n - 1; i >= 0; --i) {
    double sum = b[static_cast<size_t>(i)];
    for (int64_t j = i + 1; j < n; ++j)
      sum -= double{u[i * n + j]} * b[static_cast<size_t>(j)];
    b[static_cast<size_t>(i)] = sum / double{u[i * n + i]};
  }
  for (int64_t i = 0; i < n; ++i) {
    b[static_cast<size_t>(i)] /= double{u[i * n + i]};
    for (int64_t j = i + 1; j < n; ++j)
      b[static_cast<size_t>(j)] -= double{u[i * n + j]} * b[static_cast<size_t>(i)];
  }
  return b;
}

}  // namespace

TwoSidedMatrix::TwoSidedMatrix(const ErrorFeedback& inputs, const ErrorFeedback& outputs)
    : inputs_(inputs),
      outputs_(outputs),
      multiply_(multiply_add()),
      x_(static_cast<size_t>(rows() * cols())),
      errors_(x_.size()),
      fed_(x_.size()) {}

void TwoSidedMatrix::add_left(const Block& b, float* sums, int64_t ld) const {
  if (b.col == 0) return;
  multiply_({errors_.data() + at(b.row, 0), cols(), 1}, inputs_.row(0) + b.col, cols(), sums, ld,
            b.rows, b.cols, b.col);
}

void TwoSidedMatrix::add_above(const Block& b, float* sums, int64_t ld) const {
  if (b.row == 0) return;
  multiply_({outputs_.row(0) + b.row, 1, rows()}, fed_.data() + b.col, cols(), sums, ld, b.rows,
            b.cols, b.row);
}

// The factors of the block's own rows and columns are triangular, so its sums are solved for from
// its first row and column on.
void TwoSidedMatrix::tile_targets(const Block& b, float* targets) {
  float left[kTile * kTile] = {}, above[kTile * kTile] = {};
  add_left(b, left, kTile);
  add_above(b, above, kTile);
  for (int64_t j = 0; j < b.cols; ++j) {
    const float* factor = inputs_.row(b.col + j) + b.col;
    for (int64_t r = 0; r < b.rows; ++r) {
      float* row = left + r * kTile;
      row[j] /= factor[j];
      for (int64_t l = j + 1; l < b.cols; ++l)
        row[l] -= row[j] * factor[l];
    }
  }
  for (int64_t r = 0; r < b.rows; ++r) {
    const float* factor = outputs_.row(b.row + r) + b.row;
    float* row = above + r * kTile;
    for (int64_t j = 0; j < b.cols; ++j) {
      row[j] /= factor[r];
      for (int64_t below = r + 1; below < b.rows; ++below)
        above[below * kTile + j] -= row[j] * factor[below];
    }
  }
  for (int64_t r = 0; r < b.rows; ++r) {
    for (int64_t j = 0; j < b.cols; ++j) {
      const size_t place = at(b.row + r, b.col + j);
      fed_[place] = left[r * kTile + j];
      *targets++ = x_[place] + left[r * kTile + j] + above[r * kTile + j];
    }
  }
}

void TwoSidedMatrix::set_tile(const Block& b, const float* values) {
  for (int64_t r = b.row; r < b.row + b.rows; ++r) {
    for (int64_t j = b.col; j < b.col + b.cols; ++j) {
      const float error = x_[at(r, j)] - *values++;
      errors_[at(r, j)] = error;
      fed_[at(r, j)] += error;
    }
  }
}

// Computes c[rows][cols] = a C.
void TwoSidedMatrix::multiply_factor(const AlignedArray<float>& a, AlignedArray<float>& c,
                                     ThreadPool& pool) const {
  const int64_t n = cols();
  pool.for_each(ceil_div(rows(), kPiece), [&](int64_t piece) {
    check_stop();
    const int64_t first = piece * kPiece, count = std::min(kPiece, rows() - first);
    std::fill_n(c.data() + first * n, count * n, 0.0f);
    for (int64_t begin = 0; begin < n; begin += kStrip) {
      multiply_({a.data() + first * n + begin, n, 1}, inputs_.row(begin) + begin, n,
                c.data() + first * n + begin, n, count, n - begin, std::min(kStrip, n - begin));
    }
  });
}

// Returns the sums over the rows of (H_O E C) times (q C), where x_ has E C and fed_ has q C.
// Overwrites errors_ and x_.
std::vector<double> TwoSidedMatrix::right_side(ThreadPool& pool) {
  const int64_t m = rows(), n = cols();
  const auto for_pieces = [&](const auto& body) {
    pool.for_each(ceil_div(m, kPiece), [&](int64_t piece) {
      check_stop();
      body(piece * kPiece, std::min(kPiece, m - piece * kPiece));
    });
  };
  for_pieces([&](int64_t first, int64_t count) {  // This gives O^T E C.
    float* out = errors_.data() + first * n;
    std::fill_n(out, count * n, 0.0f);
    multiply_({outputs_.row(0) + first, 1, m}, x_.data(), n, out, n, count, n, first + count);
  });
  std::vector<double> result(static_cast<size_t>(m));
  for_pieces([&](int64_t first, int64_t count) {  // This gives O times that.
    float* out = x_.data() + first * n;
    std::fill_n(out, count * n, 0.0f);
    multiply_({outputs_.row(first) + first, m, 1}, errors_.data() + first * n, n, out, n, count, n,
              m - first);
    for (int64_t r = first; r < first + count; ++r) {
      for (int64_t j = 0; j < n; ++j)
        result[static_cast<size_t>(r)] += double{x_[at(r, j)]} * double{fed_[at(r, j)]};
    }
  });
  return result;
}

// Returns the product, element by element, of H_O and (q C) (q C)^T, where fed_ has q C.
AlignedArray<float> TwoSidedMatrix::system(ThreadPool& pool) const {
  const int64_t m = rows(), n = cols();
  AlignedArray<float> result(static_cast<size_t>(m * m));
  pool.for_each(ceil_div(m, kStrip), [&](int64_t strip) {
    const int64_t begin = strip * kStrip, count = std::min(kStrip, m - begin), behind = m - begin;
    std::vector<float> outputs(static_cast<size_t>(behind * count));
    std::vector<float> products(static_cast<size_t>(n * count));
    copy_transposed(outputs_.row(begin) + begin, m, count, behind, outputs.data());
    copy_transposed(fed_.data() + begin * n, n, count, n, products.data());
    for (int64_t row = 0; row < begin + count; row += kPiece) {
      check_stop();
      const int64_t taken = std::min(kPiece, begin + count - row);
      float weight[kPiece * kStrip] = {}, product[kPiece * kStrip] = {};
      multiply_({outputs_.row(row) + begin, m, 1}, outputs.data(), count, weight, count, taken,
                count, behind);
      multiply_({fed_.data() + row * n, n, 1}, products.data(), count, product, count, taken, count,
                n);
      for (int64_t r = 0; r < taken; ++r) {
        for (int64_t s = 0; s < count; ++s)
          result[static_cast<size_t>((row + r) * m + begin + s)] =
              weight[r * count + s] * product[r * count + s];
      }
    }
  });
  return result;
}

std::vector<double> TwoSidedMatrix::row_factors(ThreadPool& pool) {
  const int64_t m = rows();
  for (size_t i = 0; i < x_.size(); ++i)
    x_[i] -= errors_[i];
  multiply_factor(x_, fed_, pool);
  multiply_factor(errors_, x_, pool);
  AlignedArray<float> matrix = system(pool);
  std::vector<double> rest = right_side(pool);
  double mean = 0;
  for (int64_t r = 0; r < m; ++r)
    mean += double{matrix[static_cast<size_t>(r * m + r)]} / static_cast<double>(m);
  std::vector<double> factors(static_cast<size_t>(m), 1.0);
  if (!(mean > 0) || !std::isfinite(mean)) return factors;  // Everything was rounded to 0.
  mirror(matrix.data(), m, pool);
  if (factor_damped(matrix.data(), m, mean, kSystemDamping, kHopelessDamping, pool) < 0)
    return factors;
  rest = solve(matrix.data(), m, std::move(rest));
  for (size_t r = 0; r < factors.size(); ++r)
    factors[r] += rest[r];
  return factors;
}

TwoSidedRows::TwoSidedRows(TwoSidedMatrix& matrix, int64_t cols)
    : matrix_(matrix),
      width_(cols),
      left_(static_cast<size_t>(kRows * cols)),
      above_(static_cast<size_t>(kRows * cols)) {
  for (int64_t j = 0; j < matrix.cols(); ++j)
    inverse_.push_back(1 / matrix.inputs_.row(j)[j]);
}

void TwoSidedRows::start(const Block& block) {
  check_stop();
  block_ = block;
  std::fill(left_.begin(), left_.end(), 0.0f);
  std::fill(above_.begin(), above_.end(), 0.0f);
  matrix_.add_left(block, left_.data(), width_);
  matrix_.add_above(block, above_.data(), width_);
}

void TwoSidedRows::start_row(int64_t r) {
  float* sums = above_.data() + (r - block_.row) * width_;
  for (int64_t p = block_.row; p < r; ++p) {
    const float factor = matrix_.outputs_.row(p)[r];
    const float* fed = matrix_.fed_.data() + matrix_.at(p, block_.col);
    for (int64_t j = 0; j < block_.cols; ++j)
      sums[j] += factor * fed[j];
  }
  const float inverse = 1 / matrix_.outputs_.row(r)[r];
  for (int64_t j = 0; j < block_.cols; ++j)
    sums[j] *= inverse;
}

void TwoSidedRows::set(int64_t r, int64_t j, float value) {
  const size_t place = matrix_.at(r, j);
  const float error = matrix_.x_[place] - value;
  float* sums = left_.data() + local(r, block_.col);
  matrix_.errors_[place] = error;
  matrix_.fed_[place] = error + sums[j - block_.col] * inverse_[static_cast<size_t>(j)];
  const float* factor = matrix_.inputs_.row(j) + block_.col;
  for (int64_t l = j - block_.col + 1; l < block_.cols; ++l)
    sums[l] += error * factor[l];
}

// Solves t C_JJ = the sums of both sides, from the first column on.
void TwoSidedRows::block_targets(int64_t r, int64_t j, int64_t count, float* targets) const {
  for (int64_t i = 0; i < count; ++i) {
    targets[i] =
        left_[local(r, j + i)] + above_[local(r, j + i)] / inverse_[static_cast<size_t>(j + i)];
  }
  for (int64_t i = 0; i < count; ++i) {
    targets[i] *= inverse_[static_cast<size_t>(j + i)];
    const float* factor = matrix_.inputs_.row(j + i) + j;
    for (int64_t l = i + 1; l < count; ++l)
      targets[l] -= targets[i] * factor[l];
  }
  for (int64_t i = 0; i < count; ++i)
    targets[i] += matrix_.x_[matrix_.at(r, j + i)];
}

std::vector<Diagonal> diagonals(int64_t rows, int64_t cols) {
  std::vector<Diagonal> result;
  for (int64_t d = 0; d < rows + cols - 1; ++d) {
    const int64_t first = std::max<int64_t>(0, d - cols + 1), last = std::min(d, rows - 1);
    result.push_back({first, d - first, last - first + 1});
  }
  return result;
}

void for_blocks(const TwoSidedMatrix& matrix, int64_t block_cols, ThreadPool& pool,
                FunctionRef<void(const Block& block, int thread)> body) {
  constexpr int64_t kRows = TwoSidedRows::kRows;
  const int64_t rows = matrix.rows(), cols = matrix.cols();
  for (const Diagonal& d : diagonals(ceil_div(rows, kRows), ceil_div(cols, block_cols))) {
    pool.for_each(d.count, [&](int64_t i, int thread) {
      const int64_t row = (d.first_row + i) * kRows, col = (d.first_col - i) * block_cols;
      body({row, std::min(kRows, rows - row), col, std::min(block_cols, cols - col)}, thread);
    });
  }
}

}  // namespace walsh::detail
