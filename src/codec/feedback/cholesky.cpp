#include "codec/feedback/cholesky.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/aligned.h"
#include "base/checked.h"
#include "codec/feedback/multiply_add.h"

namespace walsh::detail {
namespace {

constexpr int64_t kBlock = 128;  // This many columns are factored together.
constexpr int64_t kRows = 48;    // A piece of work has this many rows.
constexpr int64_t kSquare = 64;  // Squares of this size are transposed at once.

// Eliminates blocks of columns from the last one to the first: with a = [A B; . D], the factor is
// [E F; . G] with D = G G^T, F = B G^-T and E E^T = A - F F^T.
class UpperFactor {
 public:
  UpperFactor(float* a, int64_t n, ThreadPool& pool)
      : a_(a),
        n_(n),
        pool_(pool),
        multiply_(multiply_add()),
        inverse_(static_cast<size_t>(kBlock * kBlock)),
        negated_(static_cast<size_t>(kBlock * n)) {}

  bool run() {
    for (int64_t end = n_; end > 0;) {
      const int64_t begin = (end - 1) / kBlock * kBlock;
      if (!factor_diagonal(begin, end - begin)) return false;
      if (begin > 0) {
        invert_diagonal(begin, end - begin);
        solve_panel(begin, end - begin);
        subtract_products(begin, end - begin);
      }
      end = begin;
    }
    return true;
  }

 private:
  float& at(int64_t i, int64_t j) { return a_[i * n_ + j]; }

  bool factor_diagonal(int64_t first, int64_t size) {
    for (int64_t j = size - 1; j >= 0; --j) {
      for (int64_t i = j; i >= 0; --i) {
        double sum = at(first + i, first + j);
        for (int64_t t = j + 1; t < size; ++t)
          sum -= double{at(first + i, first + t)} * double{at(first + j, first + t)};
        if (i == j) {
          if (!(sum > 0) || !std::isfinite(sum)) return false;
          at(first + j, first + j) = static_cast<float>(std::sqrt(sum));
        } else {
          at(first + i, first + j) = static_cast<float>(sum / double{at(first + j, first + j)});
        }
      }
    }
    return true;
  }

  // Sets inverse_[s][j] to the inverse of G^T, which is lower triangular.
  void invert_diagonal(int64_t first, int64_t size) {
    std::fill(inverse_.begin(), inverse_.end(), 0.0f);
    std::vector<double> column(static_cast<size_t>(size));
    for (int64_t j = 0; j < size; ++j) {
      for (int64_t s = j; s < size; ++s) {
        double sum = s == j ? 1 : 0;
        for (int64_t t = j; t < s; ++t)
          sum -= double{at(first + t, first + s)} * column[static_cast<size_t>(t)];
        column[static_cast<size_t>(s)] = sum / double{at(first + s, first + s)};
        inverse_[static_cast<size_t>(s * size + j)] =
            static_cast<float>(column[static_cast<size_t>(s)]);
      }
    }
  }

  // Computes F = B G^-T and negated_[size][first] = -F^T.
  void solve_panel(int64_t first, int64_t size) {
    pool_.for_each(ceil_div(first, kRows), [&](int64_t piece) {
      const int64_t begin = piece * kRows, rows = std::min(kRows, first - begin);
      float before[kRows * kBlock];
      for (int64_t i = 0; i < rows; ++i) {
        float* row = &at(begin + i, first);
        std::copy_n(row, size, before + i * size);
        std::fill_n(row, size, 0.0f);
      }
      multiply_({before, size, 1}, inverse_.data(), size, &at(begin, first), n_, rows, size, size);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t t = 0; t < size; ++t)
          negated_[static_cast<size_t>(t * first + begin + i)] = -at(begin + i, first + t);
      }
    });
  }

  // Computes the upper triangle of A -= F F^T (and a little below it, where nothing is kept).
  void subtract_products(int64_t first, int64_t size) {
    pool_.for_each(ceil_div(first, kRows), [&](int64_t piece) {
      const int64_t begin = piece * kRows, rows = std::min(kRows, first - begin);
      float corner[kRows * kRows];
      multiply_corner(begin, rows, first, size, corner);
      const int64_t next = begin + rows;
      if (next == first) return;
      multiply_({&at(begin, first), n_, 1}, negated_.data() + next, first, &at(begin, next), n_,
                rows, first - next, size);
    });
  }

  // Computes the square on the diagonal, of which only the upper triangle may be written.
  void multiply_corner(int64_t begin, int64_t rows, int64_t first, int64_t size, float* corner) {
    for (int64_t i = 0; i < rows; ++i)
      std::copy_n(&at(begin + i, begin), rows, corner + i * rows);
    multiply_({&at(begin, first), n_, 1}, negated_.data() + begin, first, corner, rows, rows, rows,
              size);
    for (int64_t i = 0; i < rows; ++i)
      std::copy_n(corner + i * rows + i, rows - i, &at(begin + i, begin + i));
  }

  float* a_;
  int64_t n_;
  ThreadPool& pool_;
  MultiplyAdd multiply_;
  AlignedArray<float> inverse_, negated_;
};

}  // namespace

bool factor_upper(float* a, int64_t n, ThreadPool& pool) {
  return UpperFactor(a, n, pool).run();
}

// On failure the upper triangle is restored from the lower one, which stays as it is.
double factor_damped(float* a, int64_t n, double unit, double damping, double most,
                     ThreadPool& pool) {
  std::vector<float> diagonal;
  for (int64_t i = 0; i < n; ++i)
    diagonal.push_back(a[i * n + i]);
  for (; damping <= most; damping *= 4) {
    for (int64_t i = 0; i < n; ++i)
      a[i * n + i] = static_cast<float>(double{diagonal[static_cast<size_t>(i)]} + damping * unit);
    if (factor_upper(a, n, pool)) return damping;
    transpose(a, n, pool);
    mirror(a, n, pool);
  }
  return -1;
}

void mirror(float* a, int64_t n, ThreadPool& pool) {
  pool.for_each(ceil_div(n, kRows), [&](int64_t piece) {
    for (int64_t i = piece * kRows; i < std::min(n, (piece + 1) * kRows); ++i) {
      for (int64_t j = 0; j < i; ++j)
        a[i * n + j] = a[j * n + i];
    }
  });
}

void transpose(float* a, int64_t n, ThreadPool& pool) {
  const int64_t squares = ceil_div(n, kSquare);
  pool.for_each(squares, [&](int64_t row) {
    for (int64_t col = row; col < squares; ++col) {
      for (int64_t i = row * kSquare; i < std::min(n, (row + 1) * kSquare); ++i) {
        for (int64_t j = std::max(i + 1, col * kSquare); j < std::min(n, (col + 1) * kSquare); ++j)
          std::swap(a[i * n + j], a[j * n + i]);
      }
    }
  });
}

}  // namespace walsh::detail
