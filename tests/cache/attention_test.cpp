#include "cache/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cache/stored_rows.h"

namespace walsh {
namespace {

using test::normal_rows;
using test::StoredRows;

constexpr int64_t kBundles = 17;  // two blocks and a bit
constexpr int64_t kStored = kBundles * kCacheBundle;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

struct Options {
  const char* keys;
  const char* values;
  int head_dim;
  int heads = 3;
  bool offset = true;  // something was taken from the keys
  bool rotators = true;
};

struct Result {
  std::vector<float> out, log_sums;
};

// Holds a head with kStored positions, and what these are in the original basis.
class StoredHead {
 public:
  explicit StoredHead(const Options& options)
      : options_(options),
        key_type_(get_cache_type(options.keys)),
        value_type_(get_cache_type(options.values)),
        keys_(key_type_, options.head_dim, kStored + kCacheBundle),
        values_(value_type_, options.head_dim, kStored + kCacheBundle),
        offset_(normal_rows(1, options.head_dim, 3, 0.5)) {
    key_rotator_ = rotator(key_type_, 11);
    value_rotator_ = rotator(value_type_, 12);
    key_rows_ = store(key_type_, keys_, key_rotator_.get(), 1);
    value_rows_ = store(value_type_, values_, value_rotator_.get(), 2);
    if (!options.offset) return;
    for (int64_t i = 0; i < kStored * options.head_dim; ++i)
      key_rows_[at(i)] += offset_[at(i % options.head_dim)];
  }

  CacheHead head() const {
    return {&keys_, &values_, key_rotator_.get(), value_rotator_.get(),
            options_.offset ? offset_.data() : nullptr};
  }

  // Rows are written `ldo` apart.
  Result run(Isa isa, bool exact, const CacheQueries& queries, int64_t ldo) const {
    const int64_t rows = queries.m * queries.heads;
    CacheScratch scratch(key_type_, value_type_, queries.head_dim, rows, exact);
    for (auto* array : {&scratch.weights, &scratch.sums, &scratch.largest, &scratch.totals})
      std::fill(array->begin(), array->end(), std::numeric_limits<float>::quiet_NaN());
    Result result = {std::vector<float>(at(queries.m * ldo), -7.0f), std::vector<float>(at(rows))};
    attend_stored(ops(isa), head(), queries, result.out.data(), ldo, result.log_sums.data(),
                  scratch);
    return result;
  }

  // Computes the textbook formula; the logarithm of the sum comes behind the head.
  std::vector<double> expected(const float* q, float scale, int64_t begin, int64_t end) const {
    const int64_t dim = options_.head_dim;
    std::vector<double> logits, out(at(dim + 1));
    double largest = -kInfinity, total = 0;
    for (int64_t j = begin; j < end; ++j) {
      double dot = 0;
      for (int64_t d = 0; d < dim; ++d)
        dot += double{q[d]} * double{key_rows_[at(j * dim + d)]};
      logits.push_back(dot * double{scale});
      largest = std::max(largest, logits.back());
    }
    out[at(dim)] = -kInfinity;
    if (begin >= end) return out;
    for (int64_t j = begin; j < end; ++j) {
      const double weight = std::exp(logits[at(j - begin)] - largest);
      total += weight;
      for (int64_t d = 0; d < dim; ++d)
        out[at(d)] += weight * double{value_rows_[at(j * dim + d)]};
    }
    for (int64_t d = 0; d < dim; ++d)
      out[at(d)] /= total;
    out[at(dim)] = largest + std::log(total);
    return out;
  }

 private:
  std::unique_ptr<Rotator> rotator(const CacheType& type, uint32_t seed) const {
    if (!options_.rotators || type.rotation_block == 0) return nullptr;
    return std::make_unique<Rotator>(Rotation{.block = type.rotation_block, .seed = seed},
                                     padded_head_dim(type, options_.head_dim));
  }

  // Stores random rows and returns them rotated back, [kStored][head_dim].
  template <typename Side>
  std::vector<float> store(const CacheType& type, Side& side, const Rotator* rotator,
                           uint64_t seed) const {
    const int64_t cols = side.cols(), dim = options_.head_dim;
    auto x = normal_rows(kStored + kCacheBundle, cols, seed);
    // No query sees the last bundle.
    if (type.coded) x[at(kStored * cols + 1)] = std::numeric_limits<float>::quiet_NaN();
    const StoredRows stored(type, x, cols);
    AlignedArray<float> rows_of_bundle(at(kCacheBundle * cols));
    for (int64_t bundle = 0; bundle <= kBundles; ++bundle) {
      std::copy_n(x.data() + bundle * kCacheBundle * cols, kCacheBundle * cols,
                  rows_of_bundle.data());
      side.store(ops(), bundle, rows_of_bundle.data());
    }
    std::vector<float> rows(at(kStored * dim));
    AlignedArray<float> row(at(cols));
    for (int64_t j = 0; j < kStored; ++j) {
      for (int64_t d = 0; d < cols; ++d)
        row[at(d)] = stored.value(j, d);
      if (rotator != nullptr) rotator->invert(row.data());
      std::copy_n(row.data(), dim, rows.data() + j * dim);
    }
    return rows;
  }

  Options options_;
  const CacheType& key_type_;
  const CacheType& value_type_;
  CacheKeys keys_;
  CacheValues values_;
  std::vector<float> offset_, key_rows_, value_rows_;
  std::unique_ptr<Rotator> key_rotator_, value_rotator_;
};

// Queries see nothing, a bundle, a block, over borders of blocks, everything, nothing again.
const std::vector<int64_t> kBegin = {0, 0, 0, 5, 40, 200, 300, 300, 544};
const std::vector<int64_t> kEnd = {0, 32, 256, 256, 288, 544, 544, 544, 544};

struct Queries {
  int heads, head_dim;
  int64_t m = static_cast<int64_t>(kBegin.size()), ldq;
  std::vector<float> q;

  explicit Queries(const Options& options)
      : heads(options.heads), head_dim(options.head_dim), ldq(heads * head_dim + 5) {
    q = normal_rows(m, ldq, 4, 2);
  }
  AttentionOptions options() const {
    return {.scale = static_cast<float>(1 / std::sqrt(head_dim))};
  }
  CacheQueries all() const {
    return {q.data(), ldq, m, heads, head_dim, options(), kBegin.data(), kEnd.data()};
  }
  CacheQueries one(int64_t i, int h) const {
    return {q.data() + i * ldq + h * head_dim,
            ldq,
            1,
            1,
            head_dim,
            options(),
            &kBegin[at(i)],
            &kEnd[at(i)]};
  }
};

void expect_formula(const Options& options, bool exact, double tolerance) {
  const StoredHead head(options);
  const Queries queries(options);
  const int64_t width = options.heads * options.head_dim, ldo = width + 3;
  for (const Isa isa : supported_isas()) {
    const Result result = head.run(isa, exact, queries.all(), ldo);
    for (int64_t i = 0; i < queries.m; ++i) {
      const std::string where = std::string(isa_name(isa)) + " " + options.keys + " " +
                                options.values + " head_dim " + std::to_string(options.head_dim) +
                                " query " + std::to_string(i);
      for (int64_t c = width; c < ldo; ++c)
        ASSERT_EQ(result.out[at(i * ldo + c)], -7.0f) << where << " wrote beyond the heads";
      for (int h = 0; h < options.heads; ++h) {
        const CacheQueries one = queries.one(i, h);
        const auto expected = head.expected(one.q, one.options.scale, *one.begin, *one.end);
        const float log_sum = result.log_sums[at(i * options.heads + h)];
        if (*one.begin == *one.end) {
          ASSERT_EQ(log_sum, -std::numeric_limits<float>::infinity()) << where;
        } else {
          ASSERT_NEAR(log_sum, expected.back(), tolerance) << where << " head " << h;
        }
        for (int d = 0; d < options.head_dim; ++d) {
          // Zeros of a query that sees nothing are exact.
          ASSERT_NEAR(result.out[at(i * ldo + h * options.head_dim + d)], expected[at(d)],
                      *one.begin == *one.end ? 0 : tolerance)
              << where << " head " << h << " at " << d;
        }
      }
    }
  }
}

TEST(CacheAttention, AgreesWithTheFormulaForEveryType) {
  for (const CacheType& type : all_cache_types()) {
    for (const int head_dim : {64, 80}) {
      const std::string name(type.name);
      expect_formula({name.c_str(), name.c_str(), head_dim}, true, 1e-5);
    }
  }
}

TEST(CacheAttention, KeysAndValuesMayHaveDifferentTypes) {
  expect_formula({"kt4", "tq3_0", 128}, true, 1e-5);
  expect_formula({"q8_0", "kt2", 32}, true, 1e-5);
  expect_formula({"f16", "kt3", 80}, true, 1e-5);
  expect_formula({"kt3", "f16", 80}, true, 1e-5);
}

TEST(CacheAttention, RotatorsAndOffsetMayBeAbsent) {
  expect_formula({"kt3", "kt3", 64, 1, false, true}, true, 1e-5);
  expect_formula({"kt3", "kt3", 64, 2, true, false}, true, 1e-5);
  expect_formula({"tq3_0", "kt4", 80, 2, false, false}, true, 1e-5);
}

// A step of int8 is a hundredth of a query, and as much of the sum of a logit; two planes are as
// good as float32.
TEST(CacheAttention, Int8ProductsAreNearTheFormula) {
  for (const CacheType& type : all_cache_types()) {
    const std::string name(type.name);
    const double tolerance = !type.coded ? 1e-5 : type.planes == 2 ? 3e-4 : 0.06;
    expect_formula({name.c_str(), name.c_str(), 128}, false, tolerance);
  }
}

TEST(CacheAttention, ARowDoesNotDependOnTheOthers) {
  for (const char* name : {"f16", "q8_0", "tq3_0", "kt3"}) {
    for (const int head_dim : {64, 80}) {
      const Options options = {name, name, head_dim};
      const StoredHead head(options);
      const Queries queries(options);
      const int64_t width = options.heads * head_dim;
      for (const Isa isa : supported_isas()) {
        for (const bool exact : {true, false}) {
          const Result together = head.run(isa, exact, queries.all(), width);
          for (int64_t i = 0; i < queries.m; ++i) {
            for (int h = 0; h < options.heads; ++h) {
              const std::string where = std::string(isa_name(isa)) + " " + name + " query " +
                                        std::to_string(i) + " head " + std::to_string(h);
              const Result alone = head.run(isa, exact, queries.one(i, h), head_dim);
              ASSERT_EQ(alone.log_sums[0], together.log_sums[at(i * options.heads + h)]) << where;
              for (int d = 0; d < head_dim; ++d) {
                ASSERT_EQ(alone.out[at(d)], together.out[at(i * width + h * head_dim + d)])
                    << where << " at " << d;
              }
            }
          }
        }
      }
    }
  }
}

// A window hides earlier positions of a block, whose content must not matter.
TEST(CacheAttention, PositionsOutsideAreNotSeen) {
  const CacheType& type = get_cache_type("kt3");
  for (const Isa isa : supported_isas()) {
    CacheKeys keys(type, 64, kCacheBlock);
    CacheValues values(type, 64, kCacheBlock);
    for (int64_t bundle = 0; bundle < 3; ++bundle) {
      for (const uint64_t seed : {5, 6}) {
        auto x = normal_rows(kCacheBundle, 64, seed);
        if (bundle != 1) std::fill_n(x.data() + 64, 64, std::numeric_limits<float>::infinity());
        if (seed == 5) keys.store(ops(isa), bundle, x.data());
        if (seed == 6) values.store(ops(isa), bundle, x.data());
      }
    }
    const int64_t begin = 32, end = 64;
    const auto q = normal_rows(1, 64, 7);
    const CacheHead head = {&keys, &values, nullptr, nullptr, nullptr};
    for (const bool exact : {true, false}) {
      CacheScratch scratch(type, type, 64, 1, exact);
      float out[64], log_sum;
      attend_stored(ops(isa), head, {q.data(), 64, 1, 1, 64, {.scale = 0.125f}, &begin, &end}, out,
                    64, &log_sum, scratch);
      EXPECT_TRUE(std::isfinite(log_sum));
      for (const float v : out)
        ASSERT_TRUE(std::isfinite(v)) << isa_name(isa);
      // A broken position that is seen shows.
      const int64_t more = 96;
      attend_stored(ops(isa), head, {q.data(), 64, 1, 1, 64, {.scale = 0.125f}, &begin, &more}, out,
                    64, &log_sum, scratch);
      EXPECT_TRUE(std::isnan(log_sum));
      EXPECT_TRUE(std::isnan(out[0]));
    }
  }
}

TEST(MergeAttention, TwoSetsOfPositionsBecomeTheirUnion) {
  const Options options = {"kt4", "kt4", 80, 1};
  const StoredHead head(options);
  const auto q = normal_rows(1, 80, 9, 6);
  for (const Isa isa : supported_isas()) {
    const auto over = [&](int64_t begin, int64_t end) {
      return head.run(isa, true, {q.data(), 80, 1, 1, 80, {.scale = 0.2f}, &begin, &end}, 80);
    };
    const Result all = over(3, 544);
    for (const int64_t cut : {32, 160, 256, 512}) {
      Result a = over(3, cut), b = over(cut, 544);
      for (const bool swapped : {false, true}) {
        Result first = swapped ? b : a;
        const Result& second = swapped ? a : b;
        merge_attention(first.out.data(), first.log_sums[0], second.out.data(), second.log_sums[0],
                        80);
        for (size_t d = 0; d < 80; ++d)
          ASSERT_NEAR(first.out[d], all.out[d], 5e-6) << isa_name(isa) << " cut " << cut;
      }
    }
  }
}

TEST(MergeAttention, WeighsByTheSums) {
  const float log3 = std::log(3.0f);
  for (const float size : {-1000.0f, 0.0f, 1000.0f}) {  // far beyond the range of e^x
    float a[3] = {1, 2, 3};
    const float b[3] = {5, 10, 15};
    merge_attention(a, size, b, size + log3, 2);
    EXPECT_NEAR(a[0], 4, 2e-4);
    EXPECT_NEAR(a[1], 8, 4e-4);
    EXPECT_EQ(a[2], 3.0f) << "beyond the head";
  }
}

TEST(MergeAttention, NothingChangesNothing) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  float a[2] = {1.5f, -2};
  const float zeros[2] = {0, 0}, b[2] = {3, 4};
  merge_attention(a, -3, zeros, kNothing, 2);
  EXPECT_EQ(a[0], 1.5f);
  EXPECT_EQ(a[1], -2.0f);
  float nothing[2] = {0, 0};
  merge_attention(nothing, kNothing, zeros, kNothing, 2);
  EXPECT_EQ(nothing[0], 0.0f);
  EXPECT_EQ(nothing[1], 0.0f);
  merge_attention(nothing, kNothing, b, 200, 2);
  EXPECT_EQ(nothing[0], 3.0f);
  EXPECT_EQ(nothing[1], 4.0f);
}

TEST(MergeAttention, NanStaysVisible) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const float clean[1] = {2}, broken[1] = {kNan};
  float a[1] = {kNan}, b[1] = {2};
  merge_attention(a, kNan, clean, 1, 1);
  EXPECT_TRUE(std::isnan(a[0]));
  merge_attention(b, 1, broken, kNan, 1);
  EXPECT_TRUE(std::isnan(b[0]));
}

}  // namespace
}  // namespace walsh
