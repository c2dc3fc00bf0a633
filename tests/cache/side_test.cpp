#include "cache/side.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "cache/stored_rows.h"

namespace walsh {
namespace {

using test::normal_rows;
using test::StoredRows;

constexpr int64_t kHeadDims[] = {32, 64, 80, 128};
// Bundles are stored in this order: both sides of the border of a block, the first one last, one
// twice; bundles 1 and 3 to 6 never.
constexpr int64_t kOrder[] = {8, 2, 7, 2, 0};
constexpr int64_t kStored[] = {0, 2, 7, 8};
constexpr int64_t kBundles = 9;
constexpr int64_t kCapacity = kBundles * kCacheBundle;
constexpr int64_t kRows = 5;

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

bool is_stored(int64_t position) {
  return std::count(std::begin(kStored), std::end(kStored), position / kCacheBundle) > 0;
}

// Returns the rows of all positions, zeros where nothing is stored.
StoredRows expected_rows(const CacheType& type, int64_t cols, uint64_t seed) {
  auto x = normal_rows(kCapacity, cols, seed);
  for (int64_t i = 0; i < kCapacity * cols; ++i) {
    if (!is_stored(i / cols)) x[at(i)] = 0;
  }
  return StoredRows(type, x, cols);
}

// Stores the rows of expected_rows; what bundle 2 has at first is overwritten by the second time.
template <typename Side>
Side filled(const Ops& ops, const CacheType& type, int64_t head_dim, uint64_t seed) {
  Side side(type, head_dim, kCapacity);
  const int64_t cols = side.cols();
  const auto x = normal_rows(kCapacity, cols, seed);
  bool before = false;
  for (const int64_t bundle : kOrder) {
    AlignedArray<float> rows(at(kCacheBundle * cols));
    std::copy_n(x.data() + bundle * kCacheBundle * cols, kCacheBundle * cols, rows.data());
    if (bundle == 2 && !before) {
      std::reverse(rows.begin(), rows.end());
      before = true;
    }
    side.store(ops, bundle, rows.data());
  }
  return side;
}

// Calls body(isa, type, head_dim, text).
template <typename Body>
void for_everything(const Body& body) {
  for (const Isa isa : supported_isas()) {
    for (const CacheType& type : all_cache_types()) {
      for (const int64_t head_dim : kHeadDims) {
        body(isa, type, head_dim,
             std::string(isa_name(isa)) + " " + std::string(type.name) + " head_dim " +
                 std::to_string(head_dim));
      }
    }
  }
}

template <typename Side>
void expect_loads(Isa isa, const CacheType& type, int64_t head_dim, const std::string& where) {
  const auto side = filled<Side>(ops(isa), type, head_dim, 1);
  const int64_t cols = side.cols();
  ASSERT_EQ(cols, padded_head_dim(type, head_dim));
  const StoredRows expected = expected_rows(type, cols, 1);
  for (const int64_t bundle : kStored) {
    AlignedArray<float> x(at(kCacheBundle * cols));
    std::fill(x.begin(), x.end(), 7.0f);
    side.load(ops(isa), bundle, x.data());
    for (int64_t j = 0; j < kCacheBundle; ++j) {
      for (int64_t d = 0; d < cols; ++d) {
        ASSERT_EQ(x[at(j * cols + d)], expected.value(bundle * kCacheBundle + j, d))
            << where << " bundle " << bundle << " position " << j << " at " << d;
      }
    }
  }
}

TEST(CacheKeys, LoadGivesWhatTheScalarCodeDecodes) {
  for_everything(expect_loads<CacheKeys>);
}

TEST(CacheValues, LoadGivesWhatTheScalarCodeDecodes) {
  for_everything(expect_loads<CacheValues>);
}

TEST(CacheSides, TakeTheRoomThatTheTypePromises) {
  for (const CacheType& type : all_cache_types()) {
    for (const int64_t head_dim : kHeadDims) {
      const auto bits = cache_bits(type, head_dim) * static_cast<double>(512 * head_dim);
      for (const int64_t capacity : {512, 257}) {  // whole blocks
        EXPECT_EQ(8.0 * static_cast<double>(CacheKeys(type, head_dim, capacity).bytes()), bits)
            << type.name;
        // The kernels want a scale per row and block, which is one; fp16 values have one each.
        const auto ones =
            static_cast<double>(type.coded ? 2 * padded_head_dim(type, head_dim) : 512);
        EXPECT_EQ(8.0 * static_cast<double>(CacheValues(type, head_dim, capacity).bytes()),
                  bits + 16 * ones)
            << type.name;
      }
    }
  }
}

TEST(CacheSides, RowsHaveThePlanesOfTheType) {
  for (const CacheType& type : all_cache_types()) {
    EXPECT_FALSE(query_rows(type, 3, 96, true).quantized()) << type.name;
    EXPECT_FALSE(weight_rows(type, 3, 96, true).quantized()) << type.name;
    for (const CacheRows& rows :
         {query_rows(type, 3, 96, false), weight_rows(type, 3, 96, false)}) {
      ASSERT_EQ(rows.quantized(), type.coded) << type.name;
      if (type.coded) {
        EXPECT_EQ(rows.i8.planes, type.name == "q8_0" ? 2 : 1) << type.name;
      }
    }
  }
}

// Where a rotation does not reach over the whole head, a large element must not cost those of other
// groups their precision.
TEST(CacheSides, StepsOfQueriesReachAsFarAsTheRotation) {
  for (const CacheType& type : all_cache_types()) {
    CacheRows q = query_rows(type, 1, 128, false);
    if (!q.quantized()) continue;
    for (float& v : q.x)
      v = 1;
    q.x[0] = 1000;
    q.quantize(ops(), 0);
    const bool alone = type.name == "q8_0" || type.name.starts_with("tq3_0");
    // 1 is 127 steps of its own group, or less than one of the large element's.
    EXPECT_EQ(q.i8.q[32], alone ? 127 : 0) << type.name;
    EXPECT_EQ(q.i8.q[0], 127) << type.name;
  }
}

// Returns random queries, prepared as attention does it.
CacheRows random_queries(const Ops& ops, const CacheType& type, int64_t cols, bool exact) {
  CacheRows q = query_rows(type, kRows, cols, exact);
  const auto x = normal_rows(kRows, cols, 2, 3);
  std::copy(x.begin(), x.end(), q.x.begin());
  for (int64_t r = 0; r < kRows; ++r)
    q.quantize(ops, r);
  return q;
}

// Returns the element of a row as its int8 planes have it.
double planes_value(const ActivationsI8& x, int64_t row, int64_t col) {
  double sum = 0;
  for (int64_t p = row * x.planes; p < (row + 1) * x.planes; ++p)
    sum += double{x.scales[at(p * x.groups() + col / x.group)]} * x.q[at(p * x.cols + col)];
  return sum;
}

void expect_products(Isa isa, const CacheType& type, int64_t head_dim, const std::string& where) {
  const auto keys = filled<CacheKeys>(ops(isa), type, head_dim, 3);
  const int64_t cols = keys.cols();
  const StoredRows stored = expected_rows(type, cols, 3);
  for (const bool exact : {true, false}) {
    const CacheRows q = random_queries(ops(isa), type, cols, exact);
    struct Part {
      int64_t block, count;
    };
    for (const Part part : {Part{0, 256}, Part{0, 96}, Part{1, 32}}) {
      AlignedArray<float> out(at(kRows * kCacheBlock));
      std::fill(out.begin(), out.end(), std::numeric_limits<float>::quiet_NaN());
      keys.multiply(ops(isa), part.block, part.count, q, kRows, out.data());
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t j = 0; j < part.count; ++j) {
          const int64_t position = part.block * kCacheBlock + j;
          double dot = 0, size = 0, dot_i8 = 0, allowed = 0;
          for (int64_t d = 0; d < cols; ++d) {
            const double x = q.x[at(r * cols + d)], key = stored.value(position, d);
            dot += x * key;
            size += std::abs(x * key);
            if (!q.quantized()) continue;
            const double key_i8 = stored.value_i8(position, d), x_i8 = planes_value(q.i8, r, d);
            dot_i8 += x_i8 * key_i8;
            // Half a step of the query (of its last plane) and the rounding of the level are
            // allowed.
            const int64_t last = (r + 1) * q.i8.planes - 1;
            const double step = q.i8.scales[at(last * q.i8.groups() + d / q.i8.group)];
            allowed += std::abs(key_i8) * 0.501 * step + std::abs(x * (key - key_i8));
          }
          const float found = out[at(r * kCacheBlock + j)];
          if (q.quantized()) {
            ASSERT_NEAR(found, dot_i8, 1e-6 * size + 1e-9) << where << " position " << position;
          }
          ASSERT_NEAR(found, dot, allowed + 1e-6 * size + 1e-9)
              << where << " row " << r << " position " << position;
        }
      }
    }
  }
}

TEST(CacheKeys, MultiplyIsTheProductWithTheStoredKeys) {
  for_everything(expect_products);
}

// Returns weights as a softmax has them, zeros where nothing is stored, rows of kCacheBlock.
AlignedArray<float> random_weights(int64_t block) {
  Random random(static_cast<uint64_t>(40 + block));
  AlignedArray<float> weights(at(kRows * kCacheBlock));
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < kCacheBlock; ++j) {
      const int64_t position = block * kCacheBlock + j;
      const double v = random.below(4) == 0 ? 0 : std::exp(2 * random.normal());
      if (position >= kCapacity || !is_stored(position) || r == 3) continue;
      weights[at(r * kCacheBlock + j)] = static_cast<float>(v);
    }
  }
  // One position that gets almost everything does not cost the others their precision.
  std::fill_n(weights.begin(), 64, 0.0f);
  weights[5] = 1e4f;
  return weights;
}

// Returns the variance of what int8 weights add to a sum: steps of kWeightGroup = 64 positions
// each, the largest one of them being exact.
double int8_variance(const CacheType& type, const StoredRows& stored, const float* weights,
                     int64_t first, int64_t col) {
  double sum = 0;
  for (int64_t begin = 0; begin < kCacheBlock; begin += 64) {
    float largest = 0;
    const auto scaled = [&](int64_t j) {
      return weights[j] == 0 ? 0 : std::fabs(weights[j] * stored.scale(first + j, col));
    };
    for (int64_t j = begin; j < begin + 64; ++j)
      largest = std::max(largest, scaled(j));
    const double step = double{largest} / 127 / (type.planes == 2 ? 254 : 1);
    for (int64_t j = begin; j < begin + 64; ++j) {
      if (scaled(j) == 0 || scaled(j) == largest) continue;
      const double level = stored.level_i8(first + j, col);
      sum += level * level * step * step / 12;
    }
  }
  return sum;
}

void expect_sums(Isa isa, const CacheType& type, int64_t head_dim, const std::string& where) {
  const auto values = filled<CacheValues>(ops(isa), type, head_dim, 5);
  const int64_t cols = values.cols();
  const StoredRows stored = expected_rows(type, cols, 5);
  for (const bool exact : {true, false}) {
    CacheRows scaled = weight_rows(type, kRows, cols, exact);
    for (const int64_t block : {0, 1}) {
      const auto weights = random_weights(block);
      AlignedArray<float> sums(at(kRows * cols));
      for (int64_t i = 0; i < kRows * cols; ++i)
        sums[at(i)] = static_cast<float>(i % 11);
      values.add(ops(isa), block, weights.data(), kRows, scaled, sums.data());
      for (int64_t r = 0; r < kRows; ++r) {
        const float* w = weights.data() + r * kCacheBlock;
        for (int64_t d = 0; d < cols; ++d) {
          const auto before = static_cast<double>((r * cols + d) % 11);
          double sum = before, size = before;
          for (int64_t j = 0; j < kCacheBlock; ++j) {
            if (w[j] == 0) continue;
            const int64_t position = block * kCacheBlock + j;
            const double v =
                scaled.quantized() ? stored.value_i8(position, d) : stored.value(position, d);
            sum += double{w[j]} * v;
            size += std::abs(double{w[j]} * v);
          }
          const double variance =
              scaled.quantized() ? int8_variance(type, stored, w, block * kCacheBlock, d) : 0;
          ASSERT_NEAR(sums[at(r * cols + d)], sum, 1e-6 * size + 6 * std::sqrt(variance))
              << where << " exact " << exact << " block " << block << " row " << r << " at " << d;
        }
      }
    }
  }
}

TEST(CacheValues, AddIsTheProductWithTheStoredValues) {
  for_everything(expect_sums);
}

constexpr int64_t kBroken = 7 * kCacheBundle + 3;

// Makes a side whose position kBroken holds a NaN.
template <typename Side>
Side broken_side(const Ops& ops, const CacheType& type, int64_t head_dim) {
  auto side = filled<Side>(ops, type, head_dim, 6);
  const int64_t cols = side.cols(), bundle = kBroken / kCacheBundle;
  const auto x = normal_rows(kCapacity, cols, 6);
  AlignedArray<float> rows(at(kCacheBundle * cols));
  std::copy_n(x.data() + bundle * kCacheBundle * cols, kCacheBundle * cols, rows.data());
  rows[at(kBroken % kCacheBundle * cols + 9)] = std::numeric_limits<float>::quiet_NaN();
  side.store(ops, bundle, rows.data());
  return side;
}

TEST(CacheKeys, OnlyTheLogitOfABrokenKeyIsNan) {
  for_everything([](Isa isa, const CacheType& type, int64_t head_dim, const std::string& where) {
    const auto clean = filled<CacheKeys>(ops(isa), type, head_dim, 6);
    const auto broken = broken_side<CacheKeys>(ops(isa), type, head_dim);
    for (const bool exact : {true, false}) {
      const CacheRows q = random_queries(ops(isa), type, clean.cols(), exact);
      AlignedArray<float> expected(at(kRows * kCacheBlock)), out(at(kRows * kCacheBlock));
      clean.multiply(ops(isa), 0, kCacheBlock, q, kRows, expected.data());
      broken.multiply(ops(isa), 0, kCacheBlock, q, kRows, out.data());
      for (int64_t i = 0; i < kRows * kCacheBlock; ++i) {
        if (i % kCacheBlock == kBroken) {
          ASSERT_TRUE(std::isnan(out[at(i)])) << where;
        } else {
          ASSERT_EQ(out[at(i)], expected[at(i)]) << where << " at " << i;
        }
      }
    }
  });
}

// Positions that a query does not see have weight 0, and their content must not matter.
TEST(CacheValues, ABrokenValueOfWeightZeroDoesNotSpread) {
  for_everything([](Isa isa, const CacheType& type, int64_t head_dim, const std::string& where) {
    const auto clean = filled<CacheValues>(ops(isa), type, head_dim, 6);
    const auto broken = broken_side<CacheValues>(ops(isa), type, head_dim);
    const int64_t cols = clean.cols();
    for (const bool exact : {true, false}) {
      CacheRows scaled = weight_rows(type, kRows, cols, exact);
      auto weights = random_weights(0);
      for (int64_t r = 0; r < kRows; ++r)
        weights[at(r * kCacheBlock + kBroken)] = r == 2 ? 0.5f : 0;
      AlignedArray<float> expected(at(kRows * cols)), sums(at(kRows * cols));
      clean.add(ops(isa), 0, weights.data(), kRows, scaled, expected.data());
      broken.add(ops(isa), 0, weights.data(), kRows, scaled, sums.data());
      for (int64_t i = 0; i < kRows * cols; ++i) {
        if (i / cols == 2) {
          ASSERT_TRUE(std::isnan(sums[at(i)])) << where;
        } else {
          ASSERT_EQ(sums[at(i)], expected[at(i)]) << where << " at " << i;
        }
      }
    }
  });
}

}  // namespace
}  // namespace walsh
