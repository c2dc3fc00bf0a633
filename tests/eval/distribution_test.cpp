#include "eval/distribution.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/random.h"

namespace walsh {
namespace {

double percentile(const Distribution& values, double percent) {
  return values.percentiles({percent}).front();
}

Distribution of(const std::vector<double>& values) {
  Distribution result;
  for (const double x : values)
    result.add(x);
  return result;
}

TEST(Distribution, InterpolatesBetweenNeighbours) {
  const Distribution v = of({10, 40, 0, 20});
  EXPECT_EQ(v.percentiles({0, 100, 50}), (std::vector<double>{0, 40, 15}));
  EXPECT_NEAR(percentile(v, 90), 34, 1e-12);  // rank 2.7
  EXPECT_EQ(percentile(of({7}), 99.9), 7);
  EXPECT_EQ(v.min(), 0);
  EXPECT_EQ(v.max(), 40);
  EXPECT_EQ(v.count(), 4);
}

// Returns values of both signs over many powers of two, as dp and KL divergences are.
std::vector<double> many_values(size_t count) {
  Random random(3);
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) {
    const double magnitude = std::exp2(static_cast<double>(random.below(4000)) / 100 - 36);
    values.push_back(random.below(3) == 0 ? -magnitude : magnitude);
  }
  values[count / 2] = -40;
  values[count / 3] = 3e7;  // beyond the buckets
  values[count / 4] = 0;
  return values;
}

TEST(Distribution, IsNearlyExactForManyValues) {
  std::vector<double> values = many_values(2 * Distribution::kExact + 12345);
  const Distribution counted = of(values);
  EXPECT_EQ(counted.count(), static_cast<int64_t>(values.size()));
  EXPECT_EQ(counted.min(), -40);
  EXPECT_EQ(counted.max(), 3e7);
  std::sort(values.begin(), values.end());
  for (const double percent : {0.1, 1.0, 5.0, 33.0, 33.33, 50.0, 75.0, 99.0, 99.9}) {
    const double rank = percent / 100 * static_cast<double>(values.size() - 1);
    const double exact = values[static_cast<size_t>(rank)];
    EXPECT_NEAR(percentile(counted, percent), exact, std::fabs(exact) / 4000 + 1e-11) << percent;
  }
  EXPECT_EQ(percentile(counted, 0), -40);
  EXPECT_EQ(percentile(counted, 100), 3e7);
}

TEST(Distribution, HoldsNoMoreForMoreValues) {
  const auto allocated = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const auto values = std::make_unique<Distribution>();
  const size_t before = allocated();
  for (size_t i = 0; i < 8 * Distribution::kExact; ++i)
    values->add(static_cast<double>(i) / 1e6);
  EXPECT_LE(allocated() - before, size_t{16} << 20);
}

}  // namespace
}  // namespace walsh
