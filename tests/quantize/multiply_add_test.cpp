// Tests the linear algebra of calibration against plain loops in double.
#include "codec/feedback/multiply_add.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/cpu.h"
#include "base/random.h"
#include "codec/feedback/cholesky.h"

namespace walsh {
namespace {

using detail::LeftFactor;

std::vector<float> normals(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values)
    v = static_cast<float>(random.normal());
  return values;
}

// Returns a positive definite matrix, not too well conditioned.
std::vector<float> moments(int64_t n, uint64_t seed) {
  const int64_t samples = n / 2 + 1;
  const std::vector<float> x = normals(samples * n, seed);
  std::vector<float> a(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = i == j ? 0.05 : 0;
      for (int64_t t = 0; t < samples; ++t)
        sum += double{x[static_cast<size_t>(t * n + i)]} *
               double{x[static_cast<size_t>(t * n + j)]} / static_cast<double>(samples);
      a[static_cast<size_t>(i * n + j)] = static_cast<float>(sum);
    }
  }
  return a;
}

TEST(MultiplyAdd, IsTheSumOfProductsWithTheSameBitsOnEveryInstructionSet) {
  Random random(3);
  for (int round = 0; round < 60; ++round) {
    const auto m = static_cast<int64_t>(1 + random.below(70));
    const auto n = static_cast<int64_t>(1 + random.below(150));
    const auto k = static_cast<int64_t>(1 + random.below(300));
    const bool transposed = round % 2 == 1;
    const int64_t ldb = n + 5, ldc = n + 3;
    const std::vector<float> left = normals(m * k, 10 + static_cast<uint64_t>(round));
    const std::vector<float> b = normals(k * ldb, 100 + static_cast<uint64_t>(round));
    const std::vector<float> start = normals(m * ldc, 200 + static_cast<uint64_t>(round));
    const LeftFactor a = transposed ? LeftFactor{left.data(), 1, m} : LeftFactor{left.data(), k, 1};
    std::vector<float> expected = start;
    detail::multiply_add_ref(a, b.data(), ldb, expected.data(), ldc, m, n, k);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < ldc; ++j) {
        double sum = start[static_cast<size_t>(i * ldc + j)];
        for (int64_t t = 0; t < k && j < n; ++t)
          sum +=
              double{a.data[i * a.row + t * a.col]} * double{b[static_cast<size_t>(t * ldb + j)]};
        EXPECT_NEAR(expected[static_cast<size_t>(i * ldc + j)], sum, 1e-4);
      }
    }
    const auto same = [&](detail::MultiplyAdd multiply) {
      std::vector<float> got = start;
      multiply(a, b.data(), ldb, got.data(), ldc, m, n, k);
      return got == expected;
    };
    if (isa_supported(Isa::avx2)) {
      EXPECT_TRUE(same(detail::multiply_add_avx2)) << m << ' ' << n;
    }
    if (isa_supported(Isa::avx512)) {
      EXPECT_TRUE(same(detail::multiply_add_avx512)) << m << ' ' << n;
    }
  }
}

TEST(Cholesky, GivesAnUpperFactorOfTheMatrix) {
  ThreadPool pool(2);
  for (const int64_t n : {1, 2, 31, 127, 128, 129, 200, 384}) {
    const std::vector<float> a = moments(n, 7);
    std::vector<float> c = a;
    ASSERT_TRUE(detail::factor_upper(c.data(), n, pool)) << n;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < i; ++j)
        EXPECT_EQ(c[static_cast<size_t>(i * n + j)], a[static_cast<size_t>(i * n + j)]);
      for (int64_t j = i; j < n; ++j) {
        double sum = 0;
        for (int64_t t = j; t < n; ++t)
          sum +=
              double{c[static_cast<size_t>(i * n + t)]} * double{c[static_cast<size_t>(j * n + t)]};
        ASSERT_NEAR(sum, a[static_cast<size_t>(i * n + j)], 2e-5) << n << ' ' << i << ' ' << j;
      }
    }
  }
}

TEST(Cholesky, HasTheSameBitsWithAnyNumberOfThreadsAndInstructionSet) {
  const int64_t n = 300;
  std::vector<float> first;
  for (const int threads : {1, 3}) {
    for (const Isa isa : supported_isas()) {
      force_isa(isa_name(isa));
      ThreadPool pool(threads);
      std::vector<float> c = moments(n, 9);
      EXPECT_TRUE(detail::factor_upper(c.data(), n, pool));
      if (first.empty()) first = c;
      EXPECT_TRUE(c == first) << threads << ' ' << isa_name(isa);
    }
  }
  force_isa("");
}

TEST(Cholesky, TellsAMatrixThatIsNotPositiveDefinite) {
  ThreadPool pool(1);
  std::vector<float> a = moments(150, 5);
  a[140 * 150 + 140] = -1;
  EXPECT_FALSE(detail::factor_upper(a.data(), 150, pool));
  std::vector<float> nan = moments(150, 5);
  nan[3 * 150 + 149] = NAN;
  EXPECT_FALSE(detail::factor_upper(nan.data(), 150, pool));
}

TEST(Cholesky, TransposesInPlace) {
  ThreadPool pool(2);
  for (const int64_t n : {1, 63, 64, 65, 200}) {
    const std::vector<float> a = normals(n * n, 4);
    std::vector<float> b = a;
    detail::transpose(b.data(), n, pool);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j)
        ASSERT_EQ(b[static_cast<size_t>(j * n + i)], a[static_cast<size_t>(i * n + j)]);
    }
  }
}

}  // namespace
}  // namespace walsh
