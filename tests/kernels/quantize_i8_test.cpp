#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "kernels/ops.h"

namespace walsh {
namespace {

AlignedArray<float> random_row(int64_t cols, uint64_t seed, double size) {
  AlignedArray<float> x(static_cast<size_t>(cols));
  Random random(seed);
  for (float& v : x)
    v = static_cast<float>(size * random.normal());
  return x;
}

void expect_equal(const ActivationsI8& a, const ActivationsI8& b) {
  for (size_t i = 0; i < a.q.size(); ++i)
    ASSERT_EQ(a.q[i], b.q[i]) << i;
  for (size_t i = 0; i < a.sums.size(); ++i)
    ASSERT_EQ(a.sums[i], b.sums[i]) << i;
  for (size_t i = 0; i < a.scales.size(); ++i)
    ASSERT_EQ(a.scales[i], b.scales[i]) << i;
}

// Returns the values that q and scales represent: the sum over the planes.
double value(const ActivationsI8& a, int64_t t, int64_t c) {
  double v = 0;
  for (int p = 0; p < a.planes; ++p) {
    const int64_t plane = t * a.planes + p;
    v += double{a.scales[static_cast<size_t>(plane * a.groups() + c / a.group)]} *
         a.q[static_cast<size_t>(plane * a.cols + c)];
  }
  return v;
}

TEST(QuantizeI8, EveryInstructionSetGivesTheSameBits) {
  for (const int64_t cols : {32, 64, 384, 1056, 1376}) {
    for (const int group : {32, 128}) {
      for (const int planes : {1, 2}) {
        for (const double size : {1e-35, 1e-20, 1.0, 1e30}) {
          const auto x = random_row(cols, 1, size);
          ActivationsI8 expected(2, cols, group, planes);
          ops(Isa::ref).quantize_i8(x.data(), expected, 1);
          for (const Isa isa : supported_isas()) {
            ActivationsI8 out(2, cols, group, planes);
            ops(isa).quantize_i8(x.data(), out, 1);
            SCOPED_TRACE(isa_name(isa));
            expect_equal(out, expected);
          }
        }
      }
    }
  }
}

TEST(QuantizeI8, ErrorIsAtMostHalfAStep) {
  constexpr int64_t kCols = 1056;
  const auto x = random_row(kCols, 2, 3);
  for (const Isa isa : supported_isas()) {
    for (const int planes : {1, 2}) {
      ActivationsI8 out(1, kCols, 128, planes);
      ops(isa).quantize_i8(x.data(), out, 0);
      for (int64_t g = 0; g < out.groups(); ++g) {
        const int64_t begin = g * 128, end = std::min<int64_t>(kCols, begin + 128);
        double largest = 0;
        for (int64_t c = begin; c < end; ++c) {
          largest = std::max(largest, std::abs(double{x[static_cast<size_t>(c)]}));
        }
        const double step = planes == 1 ? largest / 127 : largest / 127 / 254;
        for (int64_t c = begin; c < end; ++c) {
          // The second plane inherits the rounding of scale * q in float32.
          EXPECT_NEAR(value(out, 0, c), x[static_cast<size_t>(c)], 0.5 * step + 2e-7 * largest);
        }
      }
    }
  }
}

TEST(QuantizeI8, SumsAreThoseOf32Columns) {
  constexpr int64_t kCols = 1056;
  const auto x = random_row(kCols, 3, 1);
  for (const Isa isa : supported_isas()) {
    ActivationsI8 out(1, kCols, 128, 2);
    ops(isa).quantize_i8(x.data(), out, 0);
    for (int64_t i = 0; i < 2 * kCols / 32; ++i) {
      int32_t sum = 0;
      for (int64_t c = 32 * i; c < 32 * i + 32; ++c)
        sum += out.q[static_cast<size_t>(c)];
      EXPECT_EQ(out.sums[static_cast<size_t>(i)], sum);
    }
  }
}

TEST(QuantizeI8, RoundsTiesToEvenAndReachesBothEnds) {
  AlignedArray<float> x(32);
  const float values[] = {127, -127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f};
  const int8_t expected[] = {127, -127, 0, 2, 2, 0, -2, 126};
  for (size_t i = 0; i < 8; ++i)
    x[i] = values[i];
  for (const Isa isa : supported_isas()) {
    ActivationsI8 out(1, 32, 32, 1);
    ops(isa).quantize_i8(x.data(), out, 0);
    EXPECT_EQ(out.scales[0], 1.0f);
    for (size_t i = 0; i < 8; ++i)
      EXPECT_EQ(out.q[i], expected[i]) << isa_name(isa);
  }
}

TEST(QuantizeI8, AGroupOfZerosHasScaleZero) {
  for (const Isa isa : supported_isas()) {
    auto x = random_row(96, 4, 1);
    for (size_t i = 32; i < 64; ++i)
      x[i] = i == 40 ? 1e-40f : -0.0f;  // a subnormal counts as zero
    ActivationsI8 out(1, 96, 32, 2);
    for (int8_t& q : out.q)
      q = 55;
    for (int32_t& s : out.sums)
      s = 55;
    ops(isa).quantize_i8(x.data(), out, 0);
    for (size_t p = 0; p < 2; ++p) {
      EXPECT_EQ(out.scales[p * 3 + 1], 0.0f);
      EXPECT_NE(out.scales[p * 3 + 2], 0.0f);
      EXPECT_EQ(out.sums[p * 3 + 1], 0);
      for (size_t i = 32; i < 64; ++i)
        EXPECT_EQ(out.q[p * 96 + i], 0);
    }
  }
}

TEST(QuantizeI8, AGroupThatIsNotFiniteHasScaleNaN) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Isa isa : supported_isas()) {
    for (const float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
      for (const size_t place : {32u, 41u, 63u}) {
        auto x = random_row(96, 5, 1);
        x[place] = bad;
        ActivationsI8 out(1, 96, 32, 1);
        ops(isa).quantize_i8(x.data(), out, 0);
        EXPECT_TRUE(std::isfinite(out.scales[0]));
        EXPECT_TRUE(std::isnan(out.scales[1])) << isa_name(isa) << " " << bad;
        EXPECT_TRUE(std::isfinite(out.scales[2]));
        for (size_t i = 32; i < 64; ++i)
          EXPECT_EQ(out.q[i], 0);
      }
    }
  }
}

}  // namespace
}  // namespace walsh
