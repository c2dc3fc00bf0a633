// Tests error feedback in two directions: where tiles are rounded to and what factor rows get,
// against plain double arithmetic, and the encoders that work with it.
#include "codec/feedback/two_sided.h"
#include "codec/small_states.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu.h"
#include "codec/trellis/tile_device.h"
#include "codec/trellis/trellis.h"
#include "codec/trellis/trellis_search.h"
#include "quantize/correlated.h"
#include "quantize/encoded.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using detail::Block;
using detail::TwoSidedMatrix;
using detail::TwoSidedRows;
using testing_support::correlated_activations;
using testing_support::decoded;
using testing_support::Encoded;
using testing_support::Matrix;
using testing_support::moments_of;
using testing_support::normal_matrix;
using testing_support::stored_bytes;

// Holds a dense matrix of doubles.
struct Plain {
  int64_t rows, cols;
  std::vector<double> values;

  Plain(int64_t r, int64_t c) : rows(r), cols(c), values(static_cast<size_t>(r * c)) {}
  double& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * cols + c)]; }
  double at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * cols + c)]; }
};

Plain product(const Plain& a, const Plain& b) {
  Plain c(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t k = 0; k < a.cols; ++k) {
      for (int64_t j = 0; j < b.cols; ++j)
        c.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}

Plain transposed(const Plain& a) {
  Plain c(a.cols, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.cols; ++j)
      c.at(j, i) = a.at(i, j);
  }
  return c;
}

// Returns the damped moments themselves, from their factor.
Plain moments_of_factor(const ErrorFeedback& feedback) {
  Plain c(feedback.size(), feedback.size());
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.cols; ++j)
      c.at(i, j) = feedback.row(i)[j];
  }
  return product(c, transposed(c));
}

// Solves a x = b by elimination with pivots.
std::vector<double> solved(Plain a, std::vector<double> b) {
  const int64_t n = a.rows;
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; ++i)
      if (std::fabs(a.at(i, k)) > std::fabs(a.at(pivot, k))) pivot = i;
    for (int64_t j = 0; j < n; ++j)
      std::swap(a.at(k, j), a.at(pivot, j));
    std::swap(b[static_cast<size_t>(k)], b[static_cast<size_t>(pivot)]);
    for (int64_t i = k + 1; i < n; ++i) {
      const double f = a.at(i, k) / a.at(k, k);
      for (int64_t j = k; j < n; ++j)
        a.at(i, j) -= f * a.at(k, j);
      b[static_cast<size_t>(i)] -= f * b[static_cast<size_t>(k)];
    }
  }
  for (int64_t i = n - 1; i >= 0; --i) {
    for (int64_t j = i + 1; j < n; ++j)
      b[static_cast<size_t>(i)] -= a.at(i, j) * b[static_cast<size_t>(j)];
    b[static_cast<size_t>(i)] /= a.at(i, i);
  }
  return b;
}

// Returns tr(E^T H_O E H_I).
double weighted(const Plain& e, const Plain& outputs, const Plain& inputs) {
  const Plain a = product(outputs, e), b = product(e, inputs);
  double sum = 0;
  for (size_t i = 0; i < a.values.size(); ++i)
    sum += a.values[i] * b.values[i];
  return sum;
}

// Returns the errors of a block that make the weighted error least when those to the left of it and
// above it are as they are and all others can be anything, by the equations of the least error
// themselves.
Plain best_errors(const Block& block, const Plain& errors, const Plain& outputs,
                  const Plain& inputs) {
  const auto known = [&](int64_t r, int64_t c) {
    return (r < block.row && c < block.col + block.cols) ||
           (r < block.row + block.rows && c < block.col);
  };
  std::vector<std::pair<int64_t, int64_t>> unknown;
  for (int64_t r = 0; r < errors.rows; ++r) {
    for (int64_t c = 0; c < errors.cols; ++c)
      if (!known(r, c)) unknown.emplace_back(r, c);
  }
  const auto n = static_cast<int64_t>(unknown.size());
  Plain a(n, n);
  std::vector<double> b(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const auto [r, c] = unknown[static_cast<size_t>(i)];
    for (int64_t j = 0; j < n; ++j) {
      const auto [p, q] = unknown[static_cast<size_t>(j)];
      a.at(i, j) = outputs.at(r, p) * inputs.at(c, q);
    }
    for (int64_t p = 0; p < errors.rows; ++p) {
      for (int64_t q = 0; q < errors.cols; ++q)
        if (known(p, q))
          b[static_cast<size_t>(i)] -= outputs.at(r, p) * inputs.at(c, q) * errors.at(p, q);
    }
  }
  const std::vector<double> x = solved(std::move(a), std::move(b));
  Plain result(block.rows, block.cols);
  for (int64_t i = 0; i < n; ++i) {
    const auto [r, c] = unknown[static_cast<size_t>(i)];
    const bool inside = r >= block.row && r < block.row + block.rows && c >= block.col &&
                        c < block.col + block.cols;
    if (inside) result.at(r - block.row, c - block.col) = x[static_cast<size_t>(i)];
  }
  return result;
}

ErrorFeedback inputs_of(int64_t width, uint64_t seed, ThreadPool& pool) {
  const InputMoments moments = moments_of(correlated_activations(400, width, seed), width, pool);
  return ErrorFeedback(moments, {}, {RotationKind::none, 32, 0, false}, width, pool);
}

ErrorFeedback outputs_of(int64_t rows, uint64_t seed, ThreadPool& pool) {
  const InputMoments moments = moments_of(correlated_activations(400, rows, seed), rows, pool);
  return ErrorFeedback::of_outputs(moments, {}, {}, pool);
}

// Rounds as a test does.
float coarse(float x) {
  return std::round(2 * x) / 2;
}

class TwoSided : public testing::Test {
 protected:
  void fill(TwoSidedMatrix& matrix) {
    const Matrix m = normal_matrix(matrix.rows(), matrix.cols(), 5);
    x_ = Plain(matrix.rows(), matrix.cols());
    for (int64_t r = 0; r < m.rows; ++r) {
      std::copy_n(m.row(r), m.cols, matrix.row(r));
      for (int64_t c = 0; c < m.cols; ++c)
        x_.at(r, c) = m.row(r)[c];
    }
  }
  // Targets less the source are what is best for the block, with the sign of errors turned.
  void expect_best(const Block& block, const float* targets, const Plain& errors,
                   const ErrorFeedback& inputs, const ErrorFeedback& outputs) {
    const Plain best =
        best_errors(block, errors, moments_of_factor(outputs), moments_of_factor(inputs));
    for (int64_t r = 0; r < block.rows; ++r) {
      for (int64_t c = 0; c < block.cols; ++c) {
        const double moved =
            double{targets[r * block.cols + c]} - x_.at(block.row + r, block.col + c);
        EXPECT_NEAR(moved, -best.at(r, c), 2e-4 * (1 + std::fabs(moved)))
            << block.row + r << ' ' << block.col + c;
      }
    }
  }

  ThreadPool pool_{2};
  Plain x_{0, 0};
};

TEST_F(TwoSided, TilesAreRoundedFromWhatMakesUpForAllBeforeThemBest) {
  constexpr int64_t kRows = 9, kCols = 11, kTile = 4;
  const ErrorFeedback inputs = inputs_of(kCols, 1, pool_), outputs = outputs_of(kRows, 2, pool_);
  TwoSidedMatrix matrix(inputs, outputs);
  fill(matrix);
  Plain errors(kRows, kCols);
  for (int64_t row = 0; row < kRows; row += kTile) {
    for (int64_t col = 0; col < kCols; col += kTile) {
      const Block tile{row, std::min(kTile, kRows - row), col, std::min(kTile, kCols - col)};
      std::vector<float> targets(static_cast<size_t>(tile.rows * tile.cols)), values;
      matrix.tile_targets(tile, targets.data());
      expect_best(tile, targets.data(), errors, inputs, outputs);
      for (const float t : targets)
        values.push_back(coarse(t));
      matrix.set_tile(tile, values.data());
      for (int64_t r = 0; r < tile.rows; ++r) {
        for (int64_t c = 0; c < tile.cols; ++c)
          errors.at(row + r, col + c) =
              x_.at(row + r, col + c) - double{values[static_cast<size_t>(r * tile.cols + c)]};
      }
    }
  }
}

TEST_F(TwoSided, ValuesAreRoundedFromWhatMakesUpForAllBeforeThemBest) {
  constexpr int64_t kRows = 6, kCols = 9, kBlock = 4;
  const ErrorFeedback inputs = inputs_of(kCols, 1, pool_), outputs = outputs_of(kRows, 2, pool_);
  TwoSidedMatrix matrix(inputs, outputs);
  fill(matrix);
  TwoSidedRows rows(matrix, kBlock);
  Plain errors(kRows, kCols);
  for (int64_t row = 0; row < kRows; row += 3) {
    for (int64_t col = 0; col < kCols; col += kBlock) {
      const Block block{row, 3, col, std::min(kBlock, kCols - col)};
      rows.start(block);
      for (int64_t r = row; r < row + 3; ++r) {
        rows.start_row(r);
        for (int64_t c = col; c < col + block.cols; ++c) {
          const float target = rows.target(r, c), value = coarse(target);
          expect_best({r, 1, c, 1}, &target, errors, inputs, outputs);
          rows.set(r, c, value);
          errors.at(r, c) = x_.at(r, c) - double{value};
        }
      }
    }
  }
}

TEST_F(TwoSided, FactorsOfRowsSolveTheSystemOfAll) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{20, 30}, {150, 70}, {33, 300}}) {
    const ErrorFeedback inputs = inputs_of(k, 1, pool_), outputs = outputs_of(n, 2, pool_);
    TwoSidedMatrix matrix(inputs, outputs);
    fill(matrix);
    Plain q(n, k);
    for (const detail::Diagonal& d : detail::diagonals((n + 15) / 16, (k + 15) / 16)) {
      for (int64_t i = 0; i < d.count; ++i) {
        const int64_t row = 16 * (d.first_row + i), col = 16 * (d.first_col - i);
        const Block tile{row, std::min<int64_t>(16, n - row), col, std::min<int64_t>(16, k - col)};
        float values[256];
        matrix.tile_targets(tile, values);
        for (int64_t j = 0; j < tile.rows * tile.cols; ++j) {
          values[j] = row == 0 && j / tile.cols == 3 ? 0 : 0.9f * coarse(values[j]);
          q.at(row + j / tile.cols, col + j % tile.cols) = values[j];
        }
        matrix.set_tile(tile, values);
      }
    }
    const Plain h = moments_of_factor(outputs), g = moments_of_factor(inputs);
    const Plain qg = product(q, g), gram = product(qg, transposed(q)), hx = product(h, x_);
    Plain a(n, n);
    std::vector<double> b(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j)
        a.at(i, j) = h.at(i, j) * gram.at(i, j);
      for (int64_t c = 0; c < k; ++c)
        b[static_cast<size_t>(i)] += hx.at(i, c) * qg.at(i, c);
    }
    a.at(3, 3) = 1;  // a row of zeros has no factor
    b[3] = 1;
    const std::vector<double> expected = solved(a, b), factors = matrix.row_factors(pool_);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(factors[i], expected[i], 2e-3) << n << ' ' << i;
  }
}

TEST_F(TwoSided, DiagonalsHaveEveryBlockBehindThoseItNeeds) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {5, 2}, {1, 7}, {7, 1}}) {
    std::vector<int> seen(static_cast<size_t>(n * k));
    for (const detail::Diagonal& d : detail::diagonals(n, k)) {
      for (int64_t i = 0; i < d.count; ++i) {
        const int64_t r = d.first_row + i, c = d.first_col - i;
        ASSERT_TRUE(r < n && c >= 0 && c < k);
        EXPECT_TRUE(r == 0 || seen[static_cast<size_t>((r - 1) * k + c)]);
        EXPECT_TRUE(c == 0 || seen[static_cast<size_t>(r * k + c - 1)]);
      }
      for (int64_t i = 0; i < d.count; ++i)
        ++seen[static_cast<size_t>((d.first_row + i) * k + d.first_col - i)];
    }
    for (const int count : seen)
      EXPECT_EQ(count, 1);
  }
}

// The rest tests the encoders.

Rotation rotation_of(const Format& format, int pass) {
  Rotation rotation;
  rotation.kind = format.rotation_block == 0 ? RotationKind::none : RotationKind::hadamard;
  rotation.block = format.rotation_block == 0 ? 32 : format.rotation_block;
  rotation.seed = rotation_seed(42, 0u, pass);
  return rotation;
}

struct Case {
  const Format& format;
  Matrix m;
  InputMoments inputs, outputs;

  Case(const Format& coded, int64_t rows, int64_t cols, ThreadPool& pool)
      : format(coded),
        m(normal_matrix(rows, cols, 7)),
        inputs(moments_of(correlated_activations(600, cols, 8), cols, pool)),
        outputs(moments_of(correlated_activations(600, rows, 9), rows, pool)) {}

  Encoded encode(bool two_sided, int threads, detail::TileDevice* device = nullptr) const {
    const Rotation rotation[2] = {rotation_of(format, 0), rotation_of(format, 1)};
    ThreadPool pool(threads);
    const ErrorFeedback before(inputs, {}, rotation[format.passes - 1], padded_cols(format, m.cols),
                               pool);
    const ErrorFeedback above = ErrorFeedback::of_outputs(outputs, {}, {}, pool);
    const auto read_rows = [&](int64_t begin, int64_t end, float* out) {
      std::copy(m.row(begin), m.row(end), out);
    };
    Encoded result;
    result.tensor =
        encode_tensor(format, rotation, {}, m.rows, m.cols, read_rows, pool, &result.squared_error,
                      &result.squared_norm, &before, device, two_sided ? &above : nullptr);
    return result;
  }

  double error(const Encoded& encoded) const {
    const std::vector<float> w = decoded(encoded.tensor);
    Plain e(m.rows, m.cols), h(m.rows, m.rows), g(m.cols, m.cols);
    for (size_t i = 0; i < w.size(); ++i)
      e.values[i] = double{m.values[i]} - double{w[i]};
    const auto fill = [](Plain& p, const InputMoments& moments) {
      for (int64_t i = 0; i < p.rows; ++i)
        for (int64_t j = 0; j < p.cols; ++j)
          p.at(i, j) =
              double{moments.sums[static_cast<size_t>(std::min(i, j) * p.rows + std::max(i, j))]};
    };
    fill(h, outputs);
    fill(g, inputs);
    return weighted(e, h, g);
  }
};

std::vector<const char*> two_sided_formats() {
  return {"tq2",      "tq3",       "tq4",       "tq4+4",           "q8_0",
          "tc2:h:L8", "tc3:h:L10", "tc4:h:L12", "tc3:h:L10:blocks"};
}

TEST(TwoSidedEncoders, LowerTheErrorThatBothSidesWeigh) {
  ThreadPool pool(2);
  for (const char* name : two_sided_formats()) {
    const Case c(testing_support::test_format(name), 72, 160, pool);
    const Encoded one = c.encode(false, 2), two = c.encode(true, 2);
    EXPECT_LT(c.error(two), 0.8 * c.error(one)) << name;
    EXPECT_LT(two.nmse(), 4 * one.nmse()) << name;
  }
}

TEST(TwoSidedEncoders, WriteTheSameBytesWithAnyNumberOfThreadsAndInstructionSet) {
  ThreadPool pool(2);
  for (const char* name : {"tq3", "tc3:h:L10", "q8_0"}) {
    const Case c(testing_support::test_format(name), 70, 160, pool);
    std::vector<std::byte> first;
    for (const Isa isa : supported_isas()) {
      force_isa(isa_name(isa));
      for (const int threads : {1, 3}) {
        const std::vector<std::byte> bytes = stored_bytes(c.encode(true, threads).tensor);
        if (first.empty()) first = bytes;
        EXPECT_TRUE(bytes == first) << name << ' ' << isa_name(isa) << ' ' << threads;
      }
    }
    force_isa("");
  }
}

// Rows in the file are as they were, whoever searches the tiles.
class OneByOne : public detail::TileDevice {
 public:
  bool searches(const Format&) const override { return true; }
  void prepare(const TrellisCode&, const detail::TrellisTable& table, int seam) override {
    search_ = std::make_unique<detail::TileSearch>(table, seam);
  }
  int64_t batch_tiles() const override { return 1; }
  float* targets(int, int64_t tiles) override {
    targets_.resize(static_cast<size_t>(tiles * kTileWeights));
    states_.resize(targets_.size());
    return targets_.data();
  }
  void start(int, int64_t tiles) override {
    search_->encode(targets_.data(), static_cast<int>(tiles), states_.data());
  }
  const uint16_t* finish(int) override { return states_.data(); }
  int64_t fed_back_rows(int64_t) const override { return kTileRows; }
  float* rows(int64_t, int64_t) override { return nullptr; }
  const uint16_t* feed_back(const detail::FedBackRows&) override { return nullptr; }
  void release() override { search_.reset(); }

 private:
  std::unique_ptr<detail::TileSearch> search_;
  std::vector<float> targets_;
  std::vector<uint16_t> states_;
};

TEST(TwoSidedEncoders, WriteTheSameBytesWhenADeviceSearches) {
  ThreadPool pool(2);
  for (const char* name : {"tc2:h:L8", "tc4:h:L12"}) {
    const Case c(testing_support::test_format(name), 70, 160, pool);
    OneByOne device;
    EXPECT_TRUE(stored_bytes(c.encode(true, 2, &device).tensor) ==
                stored_bytes(c.encode(true, 2).tensor))
        << name;
  }
}

TEST(OutputFeedback, FollowsScalesAndRotationsOfRows) {
  constexpr int64_t kRows = 64;
  ThreadPool pool(2);
  const InputMoments moments = moments_of(correlated_activations(600, kRows, 3), kRows, pool);
  std::vector<float> scales;
  for (int64_t r = 0; r < kRows; ++r)
    scales.push_back(0.5f + 0.03f * static_cast<float>(r));
  Rotation rotation;
  rotation.block = 64;
  const Rotator rotator(rotation, kRows);
  const Plain turned = moments_of_factor(ErrorFeedback::of_outputs(
      moments, scales, [&](float* y) { rotator.apply(y); }, pool));
  // Errors of a column of the matrix that is scaled and turned cost what they cost before.
  Random random(4);
  Plain mean(kRows, kRows);
  double trace = 0, turned_trace = 0;
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kRows; ++j)
      mean.at(i, j) =
          double{moments.sums[static_cast<size_t>(std::min(i, j) * kRows + std::max(i, j))]} / 600;
    trace += mean.at(i, i) / double{scales[static_cast<size_t>(i)]} /
             double{scales[static_cast<size_t>(i)]};
    turned_trace += turned.at(i, i);
  }
  const double damping = turned_trace / trace - 1;  // of the mean of the diagonal
  EXPECT_GE(damping, 0.05 * 0.999);
  for (int round = 0; round < 5; ++round) {
    Plain e(kRows, 1), f(kRows, 1);
    float changed[kRows];
    double length = 0;
    for (int64_t r = 0; r < kRows; ++r) {
      e.at(r, 0) = random.normal();
      changed[r] = static_cast<float>(e.at(r, 0)) * scales[static_cast<size_t>(r)];
    }
    rotator.apply(changed);
    for (int64_t r = 0; r < kRows; ++r) {
      f.at(r, 0) = double{changed[r]};
      length += f.at(r, 0) * f.at(r, 0);
    }
    const double cost = product(transposed(e), product(mean, e)).at(0, 0);
    const double turned_cost = product(transposed(f), product(turned, f)).at(0, 0);
    EXPECT_NEAR(turned_cost, cost + damping * trace / kRows * length, 1e-3 * turned_cost);
  }
}

void expect_not_semidefinite(const InputMoments& moments) {
  ThreadPool pool(2);
  try {
    ErrorFeedback::of_outputs(moments, {}, {}, pool);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_NE(e.reason().find("not positive semidefinite"), std::string::npos);
  }
}

TEST(OutputFeedback, RefusesMomentsThatAreNotPositiveSemidefinite) {
  ThreadPool pool(2);
  InputMoments moments(40);
  moments.tokens = 1000;
  for (int64_t i = 0; i < 40; ++i)
    moments.sums[static_cast<size_t>(i * 40 + i)] = 1;
  EXPECT_NO_THROW(ErrorFeedback::of_outputs(moments, {}, {}, pool));
  moments.sums[5] = 3;  // a covariance that is larger than both variances
  expect_not_semidefinite(moments);
}

TEST(OutputFeedback, RefusesMomentsWithNegativeVariances) {
  InputMoments moments(40);
  moments.tokens = 1000;
  for (int64_t i = 0; i < 40; ++i)
    moments.sums[static_cast<size_t>(i * 40 + i)] = -1;
  expect_not_semidefinite(moments);
}

}  // namespace
}  // namespace walsh
