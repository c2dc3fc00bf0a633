#include "codec/trellis/trellis_scales.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "codec/trellis/trellis.h"

namespace walsh::detail {
namespace {

constexpr int kRounds = 8;
// Below this rms of a tensor, scales of rows alone would be subnormal halves.
constexpr double kTiny = 1e-3;

class Alternation {
 public:
  explicit Alternation(const BlockPowers& powers)
      : powers_(powers),
        row_(static_cast<size_t>(powers.rows)),
        col_(static_cast<size_t>(powers.blocks()), 1.0) {
    for (int64_t b = 0; b < powers_.blocks(); ++b) {
      bool zero = true;
      for (int64_t r = 0; r < powers_.rows && zero; ++r)
        zero = at(r, b) == 0;
      if (zero) col_[static_cast<size_t>(b)] = 0;
    }
  }

  // These return the squares of the factors, per row and per block.
  const std::vector<double>& row() const { return row_; }
  const std::vector<double>& col() const { return col_; }

  void run() {
    fit_rows();
    for (int round = 0; round < kRounds; ++round) {
      fit_cols();
      fit_rows();
    }
  }

  double unexplained() const {
    double rest = 0, all = 0;
    for (int64_t r = 0; r < powers_.rows; ++r) {
      for (int64_t b = 0; b < powers_.blocks(); ++b) {
        const double n = powers_.sizes[static_cast<size_t>(b)];
        const double fit = row_[static_cast<size_t>(r)] * col_[static_cast<size_t>(b)];
        const double v = at(r, b);
        rest += n * ((v - fit) * (v - fit) - 2 / n * fit * fit);
        all += n * v * v;
      }
    }
    return all > 0 ? std::max(0.0, rest / all) : 0;
  }

 private:
  double at(int64_t r, int64_t b) const {
    return powers_.mean[static_cast<size_t>(r * powers_.blocks() + b)];
  }

  void fit_rows() {
    for (int64_t r = 0; r < powers_.rows; ++r) {
      double sum = 0, count = 0;
      for (int64_t b = 0; b < powers_.blocks(); ++b) {
        const double col = col_[static_cast<size_t>(b)];
        if (col == 0) continue;
        const double n = powers_.sizes[static_cast<size_t>(b)];
        sum += n * at(r, b) / col;
        count += n;
      }
      row_[static_cast<size_t>(r)] = count > 0 ? sum / count : 0;
    }
  }

  // Fits the column factors. Rows of any size count alike, because ratios decide. The mean over the
  // blocks stays 1.
  void fit_cols() {
    double total = 0, count = 0;
    for (int64_t b = 0; b < powers_.blocks(); ++b) {
      double sum = 0, rows = 0;
      for (int64_t r = 0; r < powers_.rows; ++r) {
        const double row = row_[static_cast<size_t>(r)];
        if (row == 0) continue;
        sum += at(r, b) / row;
        rows += 1;
      }
      col_[static_cast<size_t>(b)] = rows > 0 ? sum / rows : 0;
      const double n = powers_.sizes[static_cast<size_t>(b)];
      total += n * col_[static_cast<size_t>(b)];
      count += n;
    }
    if (total == 0) return;
    for (double& col : col_)
      col *= count / total;
  }

  const BlockPowers& powers_;
  std::vector<double> row_, col_;
};

// Returns the power of two that columns take over from rows, so that fp16 holds both factors in
// tensors of tiny weights.
double shared_factor(const std::vector<double>& row) {
  double sum = 0;
  for (double r : row)
    sum += r;
  const double rms = std::sqrt(sum / static_cast<double>(row.size()));
  if (!(rms > 0) || rms >= kTiny) return 1;
  return std::ldexp(1.0, std::max(-12, std::ilogb(rms) / 2));
}

}  // namespace

BlockPowers::BlockPowers(int64_t row_count, int64_t padded) : rows(row_count) {
  for (int64_t begin = 0, end = 0; begin < padded; begin = end) {
    const int64_t block = column_block(begin, padded);
    for (end = begin; end < padded && column_block(end, padded) == block;)
      end += 32;
    sizes.push_back(static_cast<int>(end - begin));
  }
  mean.resize(static_cast<size_t>(rows) * sizes.size());
}

void BlockPowers::set_row(int64_t row, const float* x) {
  double* out = mean.data() + row * blocks();
  for (const int size : sizes) {
    double sum = 0;
    for (int i = 0; i < size; ++i)
      sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    *out++ = sum / size;
    x += size;
  }
}

RankOneScales fit_rank_one(const BlockPowers& powers) {
  Alternation fit(powers);
  fit.run();
  const double shared = shared_factor(fit.row());
  RankOneScales scales;
  for (double r : fit.row())
    scales.row.push_back(static_cast<float>(std::sqrt(r) / shared));
  for (double c : fit.col()) {
    scales.col.push_back(f16_to_f32(f32_to_f16(static_cast<float>(std::sqrt(c) * shared))));
  }
  scales.unexplained = fit.unexplained();
  return scales;
}

}  // namespace walsh::detail
