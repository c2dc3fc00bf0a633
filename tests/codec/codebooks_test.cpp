// Tests the level tables against their definitions.
#include "codec/codebooks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "codec/format.h"

namespace walsh {
namespace {

double density(double x) {
  return std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
}

struct Moments {
  double mass = 0, first = 0, second = 0;
};

// Computes moments of N(0,1) on [low, high] by Simpson's rule.
Moments integrate(double low, double high) {
  constexpr int kSteps = 4000;
  const double h = (high - low) / kSteps;
  Moments m;
  for (int i = 0; i <= kSteps; ++i) {
    const double x = low + i * h;
    const double w = (i == 0 || i == kSteps ? 1 : i % 2 == 1 ? 4 : 2) * h / 3 * density(x);
    m.mass += w;
    m.first += w * x;
    m.second += w * x * x;
  }
  return m;
}

struct Quality {
  double worst_shift = 0;  // largest distance of a level to the mean of its cell
  double error = 0;        // mean squared error on N(0,1)
  double best_scale = 0;   // least-squares factor of all levels
};

Quality measure(const std::vector<double>& levels) {
  Quality q;
  double xq = 0, qq = 0;
  for (size_t i = 0; i < levels.size(); ++i) {
    const double low = i == 0 ? -12 : (levels[i - 1] + levels[i]) / 2;
    const double high = i + 1 == levels.size() ? 12 : (levels[i] + levels[i + 1]) / 2;
    const Moments m = integrate(low, high);
    q.worst_shift = std::max(q.worst_shift, std::abs(m.first / m.mass - levels[i]));
    q.error += m.second - 2 * levels[i] * m.first + levels[i] * levels[i] * m.mass;
    xq += levels[i] * m.first;
    qq += levels[i] * levels[i] * m.mass;
  }
  q.best_scale = xq / qq;
  return q;
}

template <size_t N>
std::vector<double> doubles(const float (&levels)[N]) {
  return {levels, levels + N};
}

TEST(Codebooks, lloydMaxTablesAreFixedPoints) {
  const struct {
    std::vector<double> levels;
    double nmse;  // docs/formats
  } cases[] = {{doubles(detail::kNormal2Bit), 0.117482},
               {doubles(detail::kNormal3Bit), 0.034548},
               {doubles(detail::kNormal4Bit), 0.009501},
               {{detail::kTernary[0], detail::kTernary[1], detail::kTernary[2]}, 0.190174}};
  for (const auto& c : cases) {
    const Quality q = measure(c.levels);
    // Half an ulp of the largest float level is 1.2e-7.
    EXPECT_LT(q.worst_shift, 2e-7) << c.levels.size();
    EXPECT_NEAR(q.error, c.nmse, 5e-7) << c.levels.size();
  }
}

TEST(Codebooks, tablesAreSymmetric) {
  for (size_t i = 0; i < 8; ++i)
    EXPECT_EQ(detail::kNormal4Bit[i], -detail::kNormal4Bit[15 - i]);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(detail::kNormal3Bit[i], -detail::kNormal3Bit[7 - i]);
}

TEST(Codebooks, strictStartIsTheBestScaleOfItsLevels) {
  std::vector<double> levels;
  for (int q : {-5, -3, -1, 1, 3, 5})
    levels.push_back(q / 4.0 * static_cast<double>(detail::kStrictStart));
  const Quality q = measure(levels);
  EXPECT_NEAR(q.best_scale, 1.0, 1e-7);
  EXPECT_NEAR(q.error, 0.060657, 1e-6);
}

TEST(Codebooks, paperTernaryHasItsKnownError) {
  const double a = detail::kTernaryPaper[2];
  EXPECT_NEAR(measure({-a, 0, a}).error, 0.263339, 1e-6);
}

TEST(Codebooks, interleavedTableByCode) {
  const int8_t expected[8] = {-127, -45, 14, 79, -79, -14, 45, 127};
  for (int code = 0; code < 8; ++code) {
    const int rank = 2 * (code & 3) + (code >> 2);
    EXPECT_EQ(detail::kInterleavedI8[code], expected[code]);
    EXPECT_EQ(detail::kInterleaved[code], detail::kNormal3Bit[rank]);
  }
}

TEST(Codebooks, strictTableIsTheInterleavedGridAndExactInIntegers) {
  for (int s = 0; s < 2; ++s) {
    for (int t = 0; t < 3; ++t) {
      const int code = t | s << 2;
      EXPECT_EQ(detail::kStrict[code], static_cast<float>(4 * t + 2 * s - 5) / 4);
      EXPECT_EQ(detail::kStrictI8[code], 25 * (4 * t + 2 * s - 5));
    }
    EXPECT_EQ(detail::kStrict[3 | s << 2], detail::kStrict[2 | s << 2]);
  }
}

// The int8 tables of kernels add this error to that of the format.
TEST(Codebooks, integerTablesCostLittle) {
  for (const Format& format : all_formats()) {
    if (format.kind != CodeKind::scalar || format.code[0].bits == 8) continue;
    for (int pass = 0; pass < format.passes; ++pass) {
      const ScalarCode& code = format.code[pass];
      for (int c = 0; c < 1 << code.bits; ++c) {
        const float largest = code.unit * 127;
        EXPECT_NEAR(static_cast<float>(code.levels_i8[c]) * code.unit, code.levels[c],
                    largest / 254 * 1.001f)
            << format.name << " code " << c;
      }
    }
  }
  for (const auto& [exact, rounded] :
       {std::pair{doubles(detail::kNormal3Bit), detail::kNormal3BitI8},
        std::pair{doubles(detail::kNormal4Bit), detail::kNormal4BitI8}}) {
    std::vector<double> levels;
    for (size_t i = 0; i < exact.size(); ++i)
      levels.push_back(rounded[i] * exact.back() / 127);
    EXPECT_LT(measure(levels).error, measure(exact).error * 1.003);
  }
}

}  // namespace
}  // namespace walsh
