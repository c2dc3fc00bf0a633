// Tests error feedback: moments, their factor, and the encoders against plain double arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/cpu.h"
#include "base/half.h"
#include "codec/feedback/error_feedback.h"
#include "codec/feedback/feedback_strip.h"
#include "codec/scalar/encoder.h"
#include "codec/small_states.h"
#include "codec/trellis/trellis.h"
#include "quantize/correlated.h"
#include "quantize/encoded.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing_support::correlated_activations;
using testing_support::decoded;
using testing_support::Encoded;
using testing_support::Matrix;
using testing_support::moments_of;
using testing_support::normal_matrix;
using testing_support::stored_bytes;

using Square = std::vector<std::vector<double>>;

Square zeros(int64_t n) {
  return Square(static_cast<size_t>(n), std::vector<double>(static_cast<size_t>(n)));
}

Rotation rotation_of(const Format& format, int pass) {
  Rotation rotation;
  rotation.kind = format.rotation_block == 0 ? RotationKind::none : RotationKind::hadamard;
  rotation.block = format.rotation_block == 0 ? 32 : format.rotation_block;
  rotation.seed = rotation_seed(42, 0u, pass);
  return rotation;
}

// Returns the mean of x x^T.
Square plain_moments(const std::vector<float>& x, int64_t width) {
  Square h = zeros(width);
  const auto tokens = static_cast<int64_t>(x.size()) / width;
  for (int64_t t = 0; t < tokens; ++t) {
    const float* row = x.data() + t * width;
    for (size_t i = 0; i < h.size(); ++i) {
      for (size_t j = 0; j < h.size(); ++j)
        h[i][j] += double{row[i]} * double{row[j]} / static_cast<double>(tokens);
    }
  }
  return h;
}

// Returns tr(E H E^T) of what a tensor decodes to.
double output_error(const Tensor& tensor, const Matrix& m, const Square& h) {
  const std::vector<float> w = decoded(tensor);
  double sum = 0;
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t i = 0; i < m.cols; ++i) {
      const auto at = static_cast<size_t>(r * m.cols);
      const double e =
          double{m.values[at + static_cast<size_t>(i)]} - double{w[at + static_cast<size_t>(i)]};
      for (int64_t j = 0; j < m.cols; ++j) {
        const double f =
            double{m.values[at + static_cast<size_t>(j)]} - double{w[at + static_cast<size_t>(j)]};
        sum += e * h[static_cast<size_t>(i)][static_cast<size_t>(j)] * f;
      }
    }
  }
  return sum;
}

Encoded encode_fed_back(const Format& format, const Matrix& m, const InputMoments& moments,
                        const EncodeOptions& options = {}, int threads = 1) {
  const Rotation rotation[2] = {rotation_of(format, 0), rotation_of(format, 1)};
  ThreadPool pool(threads);
  const ErrorFeedback feedback(moments, {}, rotation[format.passes - 1],
                               padded_cols(format, m.cols), pool);
  const auto read_rows = [&](int64_t begin, int64_t end, float* out) {
    std::copy(m.row(begin), m.row(end), out);
  };
  Encoded result;
  result.tensor = encode_tensor(format, rotation, options, m.rows, m.cols, read_rows, pool,
                                &result.squared_error, &result.squared_norm, &feedback);
  return result;
}

std::vector<const Format*> fed_back_formats() {
  std::vector<const Format*> formats;
  for (const Format& format : all_formats()) {
    if (format.kind == CodeKind::scalar) formats.push_back(&format);
  }
  for (const char* name :
       {"tc2:h:L8", "tc3:h:L10", "tc4:h:L12", "tc3:h:L10:blocks", "tc2.5:h:L10", "tc3.5:h:L12"})
    formats.push_back(&testing_support::test_format(name));
  return formats;
}

TEST(InputMoments, AreTheSumsOfProducts) {
  ThreadPool pool(2);
  for (const int64_t width : {1, 33, 100, 161}) {
    const std::vector<float> x = correlated_activations(300, width, 3);
    InputMoments moments(width);
    moments.add(x.data(), width, 130, pool);
    moments.add(x.data() + 130 * width, width, 170, pool);
    EXPECT_EQ(moments.tokens, 300);
    const Square expected = plain_moments(x, width);
    const std::vector<double> rms = moments.rms();
    for (int64_t i = 0; i < width; ++i) {
      const auto s = static_cast<size_t>(i);
      EXPECT_NEAR(rms[s], std::sqrt(expected[s][s]), 1e-4 * std::sqrt(expected[s][s]));
      for (int64_t j = i; j < width; ++j) {
        const double size =
            std::sqrt(expected[s][s] * expected[static_cast<size_t>(j)][static_cast<size_t>(j)]);
        ASSERT_NEAR(moments.sums[static_cast<size_t>(i * width + j)] / 300,
                    expected[s][static_cast<size_t>(j)], 1e-5 * size);
      }
    }
  }
}

TEST(InputMoments, HaveTheSameBitsWithAnyNumberOfThreadsAndInstructionSet) {
  const int64_t width = 150;
  const std::vector<float> x = correlated_activations(200, width, 4);
  std::vector<float> first;
  for (const int threads : {1, 3}) {
    for (const Isa isa : supported_isas()) {
      force_isa(isa_name(isa));
      ThreadPool pool(threads);
      const InputMoments m = moments_of(x, width, pool);
      std::vector<float> upper;
      for (int64_t i = 0; i < width; ++i)
        upper.insert(upper.end(), m.sums.data() + i * width + i, m.sums.data() + (i + 1) * width);
      if (first.empty()) first = upper;
      EXPECT_TRUE(upper == first) << threads << ' ' << isa_name(isa);
    }
  }
  force_isa("");
}

TEST(Damping, FallsWithTheAmountOfTextPerColumn) {
  EXPECT_NEAR(calibration_damping(512, 8192), 0.1, 0.005);
  EXPECT_NEAR(calibration_damping(512, 98304), 0.029, 0.001);
  EXPECT_EQ(calibration_damping(512, int64_t{1} << 40), 0.01);
  EXPECT_EQ(calibration_damping(1376, 13760), calibration_damping(512, 5120));
  EXPECT_GT(calibration_damping(512, 256), 1);
  EXPECT_GT(calibration_damping(512, 0), 1e4);
}

// C C^T = R S^-1 H S^-1 R^T + damping is compared with matrices written out.
TEST(ErrorFeedback, FactorsTheDampedMomentsOfTheRotatedActivation) {
  ThreadPool pool(2);
  const int64_t width = 150, padded = 160;
  const std::vector<float> x = correlated_activations(400, width, 5);
  std::vector<float> scales(static_cast<size_t>(width));
  for (size_t c = 0; c < scales.size(); ++c)
    scales[c] = 0.5f + 0.01f * static_cast<float>(c);
  const Rotation rotation = rotation_of(get_format("tq3"), 0);
  const ErrorFeedback feedback(moments_of(x, width, pool), scales, rotation, padded, pool);
  EXPECT_EQ(feedback.damping(), calibration_damping(width, 400));

  const Rotator rotator(rotation, padded);
  std::vector<float> rotated;
  for (int64_t t = 0; t < 400; ++t) {
    std::vector<float> row(static_cast<size_t>(padded));
    for (int64_t c = 0; c < width; ++c)
      row[static_cast<size_t>(c)] =
          x[static_cast<size_t>(t * width + c)] / scales[static_cast<size_t>(c)];
    rotator.apply(row.data());
    rotated.insert(rotated.end(), row.begin(), row.end());
  }
  Square expected = plain_moments(rotated, padded);
  double trace = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    trace += expected[i][i];
  for (size_t i = 0; i < expected.size(); ++i)
    expected[i][i] += feedback.damping() * trace / static_cast<double>(width);
  for (int64_t i = 0; i < padded; ++i) {
    for (int64_t j = 0; j < padded; ++j) {
      double sum = 0;
      for (int64_t t = 0; t < padded; ++t)
        sum += double{feedback.row(i)[t]} * double{feedback.row(j)[t]};
      ASSERT_NEAR(sum, expected[static_cast<size_t>(i)][static_cast<size_t>(j)],
                  1e-5 * trace / static_cast<double>(width));
      if (j < i) {
        ASSERT_EQ(feedback.row(i)[j], 0.0f);
      }
    }
  }
}

TEST(ErrorFeedback, ManagesDeadColumnsAndLessTextThanColumns) {
  ThreadPool pool(2);
  const Matrix m = normal_matrix(20, 96);
  const Format& format = get_format("tq3");
  for (const int64_t tokens : {0, 1, 5}) {
    std::vector<float> x = correlated_activations(tokens, 96, 6);
    for (int64_t t = 0; t < tokens; ++t)
      std::fill_n(x.data() + t * 96 + 40, 30, 0.0f);
    const Encoded fed_back = encode_fed_back(format, m, moments_of(x, 96, pool));
    for (const float v : decoded(fed_back.tensor))
      ASSERT_TRUE(std::isfinite(v));
    EXPECT_LT(fed_back.nmse(), 1.2 * format.bound) << tokens;  // hardly any feedback
  }
  InputMoments zero(96);
  const std::vector<float> silence(96 * 50, 0.0f);
  zero.add(silence.data(), 96, 50, pool);
  EXPECT_LT(encode_fed_back(format, m, zero).nmse(), 1.2 * format.bound);
}

TEST(ErrorFeedback, RefusesMomentsThatOverflow) {
  ThreadPool pool(1);
  const std::vector<float> x(96, 1e30f);
  EXPECT_THROW(
      ErrorFeedback(moments_of(x, 96, pool), {}, rotation_of(get_format("tq3"), 0), 96, pool),
      Error);
}

// This holds for every kind of code; the weight error is never less than without feedback.
TEST(Feedback, LowersTheErrorOfTheOutputAndNotThatOfTheWeights) {
  ThreadPool pool(2);
  for (const int64_t cols : {96, 352}) {
    const std::vector<float> x = correlated_activations(1500, cols, 7);
    const Square h = plain_moments(x, cols);
    const InputMoments moments = moments_of(x, cols, pool);
    const Matrix m = normal_matrix(24, cols);
    for (const Format* format : fed_back_formats()) {
      const Encoded plain = testing_support::encode(*format, m);
      const Encoded fed_back = encode_fed_back(*format, m, moments);
      EXPECT_LT(output_error(fed_back.tensor, m, h), 0.8 * output_error(plain.tensor, m, h))
          << format->name << ' ' << cols;
      EXPECT_GT(fed_back.nmse(), plain.nmse()) << format->name << ' ' << cols;
    }
  }
}

TEST(Feedback, GivesTheSameBytesWithAnyNumberOfThreadsAndInstructionSet) {
  const int64_t cols = 160;
  const std::vector<float> x = correlated_activations(300, cols, 8);
  const Matrix m = normal_matrix(70, cols);
  EncodeOptions options;
  options.effort = Effort::fast;
  for (const char* name : {"tq3", "itq3_s", "itq3_s8", "tq4:full", "tq3+2", "q4_0", "tc3:h:L10"}) {
    std::vector<std::byte> first;
    for (const int threads : {1, 3}) {
      for (const Isa isa : supported_isas()) {
        force_isa(isa_name(isa));
        ThreadPool pool(threads);
        const InputMoments moments = moments_of(x, cols, pool);
        const auto bytes = stored_bytes(
            encode_fed_back(testing_support::test_format(name), m, moments, options, threads)
                .tensor);
        if (first.empty()) first = bytes;
        EXPECT_TRUE(bytes == first) << name << ' ' << threads << ' ' << isa_name(isa);
      }
    }
  }
  force_isa("");
}

// Writes the definition in double, column by column: no blocks, no triangular solves, no lazy
// updates.
class PlainFeedback {
 public:
  PlainFeedback(const ErrorFeedback& feedback) : n_(feedback.size()), c_(zeros(n_)) {
    for (int64_t i = 0; i < n_; ++i) {
      for (int64_t j = i; j < n_; ++j)
        c_[static_cast<size_t>(i)][static_cast<size_t>(j)] = feedback.row(i)[j];
    }
  }

  // Returns the target of column j of x after the errors of the columns before it.
  double target(const std::vector<double>& x, const std::vector<double>& errors, size_t j) const {
    double sum = 0;
    for (size_t i = 0; i < j; ++i)
      sum += errors[i] * c_[i][j];
    return x[j] + sum / c_[j][j];
  }
  // Returns |(x - q) C|^2.
  double cost(const std::vector<double>& x, const std::vector<double>& q) const {
    double total = 0;
    for (size_t j = 0; j < c_.size(); ++j) {
      double sum = 0;
      for (size_t i = 0; i <= j; ++i)
        sum += (x[i] - q[i]) * c_[i][j];
      total += sum * sum;
    }
    return total;
  }

 private:
  int64_t n_;
  Square c_;
};

TEST(FeedbackStrip, HasTheTargetsOfTheDefinition) {
  ThreadPool pool(1);
  const int64_t cols = 288, rows = 3;
  const std::vector<float> activations = correlated_activations(500, cols, 9);
  const ErrorFeedback feedback(moments_of(activations, cols, pool), {},
                               rotation_of(get_format("tq3"), 0), cols, pool);
  const PlainFeedback plain(feedback);
  const Matrix m = normal_matrix(rows, cols, 12);
  for (const int64_t width : {1, 16}) {
    detail::FeedbackStrip strip(feedback);
    std::vector<std::vector<double>> x, errors, q;
    for (int64_t r = 0; r < rows; ++r) {
      std::copy(m.row(r), m.row(r) + cols, strip.row(r));
      x.emplace_back(m.row(r), m.row(r) + cols);
      errors.emplace_back(static_cast<size_t>(cols));
      q.emplace_back(static_cast<size_t>(cols));
    }
    strip.start(rows);
    for (int64_t j = 0; j < cols; j += width) {
      for (int64_t r = 0; r < rows; ++r) {
        const auto row = static_cast<size_t>(r);
        float targets[16];
        if (width == 1) {
          targets[0] = strip.target(r, j);
          EXPECT_NEAR(targets[0], plain.target(x[row], errors[row], static_cast<size_t>(j)), 1e-4);
        } else {
          strip.block_targets(r, j, width, targets);
        }
        float values[16];
        for (int64_t i = 0; i < width; ++i) {
          values[i] = std::round(2 * targets[i]) / 2;
          const auto col = static_cast<size_t>(j + i);
          q[row][col] = values[i];
          errors[row][col] = x[row][col] - double{values[i]};
        }
        strip.set(r, j, width, values);
      }
      if ((j + width) % detail::FeedbackStrip::kBlock == 0 || j + width == cols)
        strip.finish_block(j + width);
    }
    std::vector<double> factors(static_cast<size_t>(rows));
    strip.row_factors(factors.data());
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = static_cast<size_t>(r);
      const double cost = plain.cost(x[row], q[row]);
      EXPECT_NEAR(strip.weighted_error(r), cost, 1e-3 * cost) << width;
      const auto scaled = [&](double factor) {
        std::vector<double> values = q[row];
        for (double& v : values)
          v *= factor;
        return plain.cost(x[row], values);
      };
      EXPECT_LT(scaled(factors[row]), scaled(factors[row] + 1e-3));
      EXPECT_LT(scaled(factors[row]), scaled(factors[row] - 1e-3));
    }
  }
}

// With one block of columns the best is found by trying: the target of a block is where its own
// errors cost least when nothing behind it is lost.
TEST(FeedbackStrip, TargetsOfABlockMakeItsErrorVanish) {
  ThreadPool pool(1);
  const int64_t cols = 64;
  const std::vector<float> activations = correlated_activations(200, cols, 10);
  const ErrorFeedback feedback(moments_of(activations, cols, pool), {},
                               rotation_of(testing_support::test_format("tc3:h:L10"), 0), cols,
                               pool);
  const Matrix m = normal_matrix(1, cols, 13);
  detail::FeedbackStrip strip(feedback);
  std::copy(m.row(0), m.row(0) + cols, strip.row(0));
  strip.start(1);
  float targets[16], values[16];
  strip.block_targets(0, 0, 16, targets);
  for (int i = 0; i < 16; ++i)
    values[i] = std::round(targets[i]);
  strip.set(0, 0, 16, values);
  std::vector<double> x(m.row(0), m.row(0) + cols), q = x;
  std::copy(values, values + 16, q.begin());
  const PlainFeedback plain(feedback);
  // The errors of the first block alone leave a cost in all columns; setting the others to their
  // targets takes it away but for the first block's own.
  const double before = plain.cost(x, q);
  for (int64_t j = 16; j < cols; j += 16) {
    strip.block_targets(0, j, 16, targets);
    strip.set(0, j, 16, targets);
    std::copy(targets, targets + 16, q.begin() + j);
  }
  strip.finish_block(cols);
  const double after = plain.cost(x, q);
  EXPECT_LT(after, before);
  double own = 0;
  for (int64_t j = 0; j < 16; ++j) {
    double sum = 0;
    for (int64_t i = 0; i <= j; ++i)
      sum += (x[static_cast<size_t>(i)] - q[static_cast<size_t>(i)]) * double{feedback.row(i)[j]};
    own += sum * sum;
  }
  EXPECT_NEAR(after, own, 1e-3 * own);
}

// A whole scalar tensor is compared with the definition, its scales chosen by the plain search.
TEST(Feedback, ScalarCodesAreThoseOfTheDefinition) {
  ThreadPool pool(1);
  const int64_t cols = 320, rows = 5, group = 128;
  const std::vector<float> activations = correlated_activations(600, cols, 14);
  const InputMoments moments = moments_of(activations, cols, pool);
  const Format& format = get_format("tq3");
  const ScalarCode& code = format.code[0];
  const Matrix m = normal_matrix(rows, cols, 15);
  const Encoded fed_back = encode_fed_back(format, m, moments);
  const ErrorFeedback feedback(moments, {}, rotation_of(format, 0), cols, pool);
  const PlainFeedback plain(feedback);
  const Rotator rotator(rotation_of(format, 0), cols);
  int64_t equal = 0;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<float> rotated(m.row(r), m.row(r) + cols);
    rotator.apply(rotated.data());
    const std::vector<double> x(rotated.begin(), rotated.end());
    std::vector<double> errors(x.size());
    std::vector<uint8_t> codes(x.size());
    uint16_t scale = 0;
    for (size_t j = 0; j < x.size(); ++j) {
      if (j % group == 0) {
        std::vector<float> targets;
        for (size_t i = j; i < std::min<size_t>(x.size(), j + group); ++i)
          targets.push_back(static_cast<float>(plain.target(x, errors, i)));
        std::vector<std::byte> unused(targets.size());
        encode_rows(code, {}, targets.data(), 1, static_cast<int64_t>(targets.size()),
                    {unused.data(), &scale, nullptr, nullptr});
      }
      const double target = plain.target(x, errors, j);
      size_t best = 0;
      for (size_t level = 1; level < 8; ++level) {
        const double d = double{f16_to_f32(scale)};
        if (std::fabs(target - d * double{code.levels[level]}) <
            std::fabs(target - d * double{code.levels[best]})) {
          best = level;
        }
      }
      codes[j] = static_cast<uint8_t>(best);
      errors[j] = x[j] - double{f16_to_f32(scale)} * double{code.levels[best]};
    }
    std::vector<uint8_t> got(x.size());
    unpack_codes(code, fed_back.tensor.pass[0].codes.data() + r * code_bytes_per_row(code, cols),
                 cols, got.data());
    for (size_t j = 0; j < x.size(); ++j)
      equal += got[j] == codes[j];
  }
  // float32 differs from double: a target within 1e-6 of a threshold may fall on the other side.
  EXPECT_GE(equal, rows * cols - 5);
}

}  // namespace
}  // namespace walsh
