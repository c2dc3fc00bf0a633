#include "cache/encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "cache/stored_rows.h"

namespace walsh {
namespace {

using test::normal_rows;
using test::StoredRows;

constexpr int64_t kCols = 128;

class CacheEncodeOnEachIsa : public testing::Test {
 protected:
  ~CacheEncodeOnEachIsa() override { force_isa(""); }
};

std::vector<const CacheType*> coded_types() {
  std::vector<const CacheType*> types;
  for (const CacheType& type : all_cache_types()) {
    if (type.coded) types.push_back(&type);
  }
  return types;
}

double nmse(const StoredRows& stored, const std::vector<float>& x) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const double v = x[i], difference = v - double{stored.value(at / kCols, at % kCols)};
    error += difference * difference;
    norm += v * v;
  }
  return error / norm;
}

TEST(CacheEncode, ReachesEveryBound) {
  const auto x = normal_rows(4096, kCols, 1);
  for (const CacheType* type : coded_types()) {
    const double found = nmse(StoredRows(*type, x, kCols), x);
    if (type->name == "tq3_0:seed") {
      // Four levels fitted to the largest value are worse than two bits, as published.
      EXPECT_GT(found, 0.17);
      EXPECT_LT(found, 0.20);
      continue;
    }
    ASSERT_GT(type->bound, 0) << type->name;
    EXPECT_LE(found, type->bound) << type->name;
    // A bound says something only if it is near what the code can do.
    EXPECT_GE(found, (type->code.bits == 8 ? 0.5 : 0.85) * type->bound) << type->name;
  }
}

TEST(CacheEncode, ErrorDoesNotDependOnTheSizeOfAVector) {
  const auto unit = normal_rows(128, kCols, 2);
  for (const CacheType* type : coded_types()) {
    const double expected = nmse(StoredRows(*type, unit, kCols), unit);
    for (const float size : {0.015625f, 64.0f}) {
      auto x = unit;
      for (float& v : x)
        v *= size;
      EXPECT_NEAR(nmse(StoredRows(*type, x, kCols), x), expected, 0.03 * expected) << type->name;
    }
  }
}

TEST_F(CacheEncodeOnEachIsa, BitsDoNotDependOnTheIsa) {
  const auto x = normal_rows(96, 96, 3);
  for (const CacheType* type : coded_types()) {
    force_isa("ref");
    const StoredRows expected(*type, x, 96);
    for (const Isa isa : supported_isas()) {
      force_isa(isa_name(isa));
      const StoredRows stored(*type, x, 96);
      EXPECT_EQ(stored.packed(), expected.packed()) << type->name << ' ' << isa_name(isa);
      EXPECT_EQ(stored.scales(), expected.scales()) << type->name << ' ' << isa_name(isa);
    }
  }
}

TEST(CacheEncode, ZerosStayZeros) {
  auto x = normal_rows(3, kCols, 4);
  std::fill_n(x.begin() + kCols, kCols, 0.0f);
  for (const CacheType* type : coded_types()) {
    const StoredRows stored(*type, x, kCols);
    for (int64_t c = 0; c < kCols; ++c) {
      ASSERT_EQ(stored.scale(1, c), 0.0f) << type->name;
      ASSERT_EQ(stored.value(1, c), 0.0f) << type->name;
      ASSERT_NE(stored.scale(0, c), 0.0f) << type->name;
      ASSERT_NE(stored.scale(2, c), 0.0f) << type->name;
    }
  }
}

TEST(CacheEncode, HugeValuesSaturate) {
  for (const CacheType* type : coded_types()) {
    const StoredRows stored(*type, normal_rows(2, kCols, 5, 1e30), kCols);
    for (int64_t c = 0; c < kCols; ++c)
      ASSERT_TRUE(std::isfinite(stored.value(1, c))) << type->name;
  }
}

// Results that use such a row are NaN, as with fp16; other rows are unaffected.
TEST(CacheEncode, RowsThatAreNotFiniteGetScalesNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
    for (const int64_t col : {0, 37, 127}) {
      const auto clean = normal_rows(5, kCols, 6);
      auto x = clean;
      for (const int64_t row : {1, 4})
        x[static_cast<size_t>(row * kCols + col)] = bad;
      for (const CacheType* type : coded_types()) {
        const StoredRows stored(*type, x, kCols), expected(*type, clean, kCols);
        // Zeros are coded as they are anywhere else.
        const StoredRows zeros(*type, std::vector<float>(kCols), kCols);
        for (int64_t r = 0; r < 5; ++r) {
          const bool broken = r == 1 || r == 4;
          for (int64_t c = 0; c < kCols; ++c) {
            const std::string where = std::string(type->name) + " row " + std::to_string(r);
            if (broken) {
              ASSERT_TRUE(std::isnan(stored.scale(r, c))) << where;
              ASSERT_EQ(stored.code(r, c), zeros.code(0, c)) << where;
              ASSERT_EQ(stored.input()[static_cast<size_t>(r * kCols + c)], 0.0f) << where;
            } else {
              ASSERT_EQ(stored.scale(r, c), expected.scale(r, c)) << where;
              ASSERT_EQ(stored.code(r, c), expected.code(r, c)) << where;
            }
          }
        }
      }
    }
  }
}

// The text says "scale = largest magnitude / largest level, the nearest of four levels, the sign of
// the rest".
TEST(CacheEncode, SeedTypeFollowsItsText) {
  const CacheType& type = get_cache_type("tq3_0:seed");
  const std::vector<double> levels = {-1.51, -0.453, 0.453, 1.51};
  const auto x = normal_rows(64, kCols, 7);
  const StoredRows stored(type, x, kCols);
  int of_level[4] = {};
  for (int64_t r = 0; r < 64; ++r) {
    for (int64_t g = 0; g < kCols; g += 32) {
      const float* group = x.data() + r * kCols + g;
      float largest = 0;
      for (int i = 0; i < 32; ++i)
        largest = std::max(largest, std::fabs(group[i]));
      const double scale = stored.scale(r, g);
      ASSERT_NEAR(scale, double{largest} / 1.51, 0x1p-11 * scale) << "more than a rounding";
      for (int i = 0; i < 32; ++i) {
        const double v = double{group[i]} / scale;
        const int code = stored.code(r, g + i), level = code / 2;
        ++of_level[level];
        for (const double other : levels)
          ASSERT_LE(std::abs(v - levels[static_cast<size_t>(level)]), std::abs(v - other) + 1e-6);
        if (std::abs(v - levels[static_cast<size_t>(level)]) > 1e-6) {
          ASSERT_EQ(code % 2, v > levels[static_cast<size_t>(level)] ? 1 : 0);
        }
        if (std::fabs(group[i]) == largest) {
          ASSERT_EQ(level, group[i] < 0 ? 0 : 3);
        }
      }
    }
  }
  for (const int count : of_level)
    EXPECT_GT(count, 100);
}

TEST(CacheEncode, ThirdBitOfTheSeedTypeIsNotRead) {
  const CacheType& type = get_cache_type("tq3_0:seed");
  ASSERT_EQ(type.code.bits, 3);
  for (int c = 0; c < 8; c += 2) {
    EXPECT_EQ(type.code.levels[c], type.code.levels[c + 1]);
    EXPECT_EQ(type.code.levels_i8[c], type.code.levels_i8[c + 1]);
  }
}

}  // namespace
}  // namespace walsh
