#include "rotate/rotation.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "base/cpu.h"
#include "base/random.h"
#include "rotate/hadamard.h"
#include "walsh/error.h"

namespace walsh {
namespace {

std::vector<float> normal_row(int64_t k, uint64_t seed) {
  Random random(seed);
  std::vector<float> row(static_cast<size_t>(k));
  for (float& v : row)
    v = static_cast<float>(random.normal());
  return row;
}

double norm(const std::vector<float>& x) {
  double sum = 0;
  for (float v : x)
    sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

std::vector<float> applied(const Rotation& rotation, std::vector<float> row) {
  Rotator(rotation, static_cast<int64_t>(row.size())).apply(row.data());
  return row;
}

// Returns the dense matrix of a rotation, column by column.
std::vector<std::vector<float>> columns_of(const Rotation& rotation, int64_t k) {
  std::vector<std::vector<float>> columns;
  for (int64_t j = 0; j < k; ++j) {
    std::vector<float> unit(static_cast<size_t>(k));
    unit[static_cast<size_t>(j)] = 1;
    columns.push_back(applied(rotation, unit));
  }
  return columns;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

class EachIsa : public testing::Test {
 protected:
  ~EachIsa() override { force_isa(""); }
};

using RotationOnEachIsa = EachIsa;

const int64_t kAwkwardLengths[] = {32,  64,   96,   128,  160,  224,  288,  896,
                                   992, 1024, 1152, 1376, 1408, 4096, 29568};

TEST(RotationSigns, first64OfSeed42) {
  const std::string expected = "++-+-+-++++-+-+---+-+-+-++-+---+------+-+++---+---++--+-------++";
  std::string found;
  for (uint64_t i = 0; i < 64; ++i)
    found += rotation_sign(42, i) > 0 ? '+' : '-';
  EXPECT_EQ(found, expected);
}

TEST(RotationSigns, dependOnSeedAndAreBalanced) {
  int sum = 0, differing = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    sum += rotation_sign(42, i) > 0 ? 1 : -1;
    differing += rotation_sign(42, i) != rotation_sign(43, i) ? 1 : 0;
  }
  EXPECT_LT(std::abs(sum), 400);
  EXPECT_NEAR(differing, 5000, 300);
}

TEST(RotationSeeds, aPureFunctionWithoutRepeats) {
  std::set<uint32_t> seen;
  for (int layer = 0; layer < 2000; ++layer) {
    for (int pass = 0; pass < 2; ++pass) {
      const std::string name = "layers." + std::to_string(layer) + ".attention";
      seen.insert(rotation_seed(42, name, pass));
      EXPECT_EQ(rotation_seed(42, name, pass), rotation_seed(42, name, pass));
    }
  }
  EXPECT_EQ(seen.size(), 4000u);
  EXPECT_NE(rotation_seed(42, "a", 0), rotation_seed(43, "a", 0));
  EXPECT_NE(rotation_seed(42, 0u, 0), rotation_seed(42, 1u, 0));
}

TEST(RotationSegments, coverARowInDescendingPowersOfTwo) {
  for (int64_t k : kAwkwardLengths) {
    for (int block : {32, 64, 128, 256, 512, 1024}) {
      int64_t next = 0;
      int previous = block;
      for (const Segment& s : rotation_segments(k, block)) {
        EXPECT_EQ(s.offset, next);
        EXPECT_LE(s.size, previous);
        EXPECT_GE(s.size, 32);
        EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(s.size)));
        next += s.size;
        previous = s.size;
      }
      EXPECT_EQ(next, k) << k << " in blocks of " << block;
    }
  }
}

TEST(RotationSegments, tailOf1376) {
  const std::vector<Segment> segments = rotation_segments(1376, 256);
  ASSERT_EQ(segments.size(), 7u);
  EXPECT_EQ(segments[4].size, 256);
  EXPECT_EQ(segments[5].size, 64);
  EXPECT_EQ(segments[5].offset, 1280);
  EXPECT_EQ(segments[6].size, 32);
}

TEST_F(RotationOnEachIsa, hadamardEqualsTheSylvesterMatrix) {
  for (Isa isa : supported_isas()) {
    force_isa(isa_name(isa));
    for (int n : {32, 64, 128, 256, 512, 1024}) {
      const std::vector<float> x = normal_row(n, static_cast<uint64_t>(n));
      std::vector<float> y = x;
      detail::hadamard_function()(y.data(), n);
      for (size_t i = 0; i < x.size(); ++i) {
        double expected = 0;
        for (size_t j = 0; j < x.size(); ++j)
          expected += (std::popcount(i & j) % 2 == 0 ? 1.0 : -1.0) * static_cast<double>(x[j]);
        // log2(n) additions of values of size sqrt(n) make this error.
        ASSERT_NEAR(y[i], expected, 1e-6 * n) << isa_name(isa) << " n=" << n << " i=" << i;
      }
    }
  }
}

TEST_F(RotationOnEachIsa, bitsDoNotDependOnTheIsa) {
  for (int64_t k : kAwkwardLengths) {
    for (int block : {32, 128, 256, 1024}) {
      const Rotation rotation{RotationKind::hadamard, block, 7, true};
      const std::vector<float> x = normal_row(k, 5);
      force_isa("ref");
      const std::vector<float> expected = applied(rotation, x);
      std::vector<float> expected_inverse = x;
      Rotator(rotation, k).invert(expected_inverse.data());
      for (Isa isa : supported_isas()) {
        force_isa(isa_name(isa));
        const std::vector<float> found = applied(rotation, x);
        std::vector<float> inverse = x;
        Rotator(rotation, k).invert(inverse.data());
        const size_t bytes = x.size() * sizeof(float);
        EXPECT_EQ(std::memcmp(found.data(), expected.data(), bytes), 0) << isa_name(isa) << k;
        EXPECT_EQ(std::memcmp(inverse.data(), expected_inverse.data(), bytes), 0);
      }
    }
  }
}

TEST(Rotator, appliesSignsThenTheNormalizedMatrixPerBlock) {
  // The row has 96 = 64 + 32 columns: signs run over the whole row, the transform over each block.
  const Rotation rotation{RotationKind::hadamard, 64, 42, true};
  const std::vector<float> x = normal_row(96, 3);
  const std::vector<float> y = applied(rotation, x);
  for (size_t i = 0; i < 96; ++i) {
    const size_t begin = i < 64 ? 0 : 64, size = i < 64 ? 64 : 32;
    double expected = 0;
    for (size_t j = 0; j < size; ++j) {
      const double h = std::popcount((i - begin) & j) % 2 == 0 ? 1 : -1;
      expected +=
          h * static_cast<double>(x[begin + j]) * static_cast<double>(rotation_sign(42, begin + j));
    }
    EXPECT_NEAR(y[i], expected / std::sqrt(static_cast<double>(size)), 1e-5);
  }
}

TEST(Rotator, withoutSignsAConstantRowBecomesOneSpike) {
  const Rotation rotation{RotationKind::hadamard, 128, 42, false};
  const std::vector<float> y = applied(rotation, std::vector<float>(128, 1.0f));
  EXPECT_NEAR(y[0], std::sqrt(128.0), 1e-4);
  for (size_t i = 1; i < y.size(); ++i)
    EXPECT_EQ(y[i], 0.0f);
}

TEST(Rotator, invertUndoesApplyAndNormsAreKept) {
  for (RotationKind kind : {RotationKind::none, RotationKind::hadamard, RotationKind::qr}) {
    for (int64_t k : kAwkwardLengths) {
      const Rotation rotation{kind, 128, 11, true};
      const Rotator rotator(rotation, k);
      EXPECT_EQ(rotator.size(), k);
      EXPECT_EQ(rotator.rotation(), rotation);
      const std::vector<float> x = normal_row(k, 1);
      std::vector<float> y = x;
      rotator.apply(y.data());
      EXPECT_NEAR(norm(y) / norm(x), 1.0, 1e-6) << k;
      rotator.invert(y.data());
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_NEAR(y[i], x[i], 4e-6) << rotation_kind_name(kind) << " k=" << k << " i=" << i;
    }
  }
}

TEST(Rotator, matrixIsOrthonormal) {
  for (RotationKind kind : {RotationKind::hadamard, RotationKind::qr}) {
    const auto columns = columns_of({kind, 64, 9, true}, 96);
    for (size_t a = 0; a < columns.size(); ++a) {
      for (size_t b = 0; b <= a; ++b)
        EXPECT_NEAR(dot(columns[a], columns[b]), a == b ? 1.0 : 0.0, 2e-6);
    }
  }
}

TEST(Rotator, dotProductsSurviveTheRotation) {
  const Rotation rotation{RotationKind::hadamard, 256, 42, true};
  const std::vector<float> w = normal_row(896, 1), x = normal_row(896, 2);
  EXPECT_NEAR(dot(applied(rotation, w), applied(rotation, x)), dot(w, x), 1e-3);
}

TEST(Rotator, noneIsTheIdentityForAnyLength) {
  const std::vector<float> x = normal_row(33, 4);
  EXPECT_EQ(applied({RotationKind::none, 0, 0, true}, x), x);
}

TEST(RotatorQr, blocksOfOneSizeShareTheMatrixOfTheSeed) {
  const std::vector<float> x = normal_row(128, 6);
  std::vector<float> twice = x;
  twice.insert(twice.end(), x.begin(), x.end());
  const Rotation rotation{RotationKind::qr, 128, 5, true};
  const std::vector<float> once = applied(rotation, x), both = applied(rotation, twice);
  EXPECT_TRUE(std::equal(once.begin(), once.end(), both.begin()));
  EXPECT_TRUE(std::equal(once.begin(), once.end(), both.begin() + 128));
  EXPECT_NE(applied({RotationKind::qr, 128, 6, true}, x), once);
}

TEST(RotatorQr, everyMatrixCountsOnceInTheWork) {
  OrthogonalWork work;
  const auto cost = [](double n) { return n * n * (n + 512); };
  work.add({RotationKind::hadamard, 1024, 5, true}, 4096);
  work.add({RotationKind::none, 32, 0, false}, 4096);
  EXPECT_EQ(work.total(), 0);
  work.add({RotationKind::qr, 1024, 5, true}, 4096 + 96);
  EXPECT_EQ(work.total(), cost(1024) + cost(64) + cost(32));
  work.add({RotationKind::qr, 512, 5, true}, 64);
  EXPECT_EQ(work.total(), cost(1024) + cost(64) + cost(32));
  work.add({RotationKind::qr, 512, 6, true}, 64);
  EXPECT_EQ(work.total(), cost(1024) + 2 * cost(64) + cost(32));
}

TEST(RotatorQr, modelsOfAnySizeMayBeRotatedInLargeBlocks) {
  struct {
    int layers;
    int64_t hidden, ffn;
    double bytes;
  } const shapes[] = {{6, 384, 1056, 4e6},      {8, 512, 1376, 7e6},      {24, 896, 4864, 1.8e8},
                      {22, 2048, 5632, 4e8},    {32, 4096, 14336, 2.1e9}, {80, 8192, 28672, 1.9e10},
                      {126, 16384, 53248, 1e11}};
  for (const auto& shape : shapes) {
    OrthogonalWork work;
    uint32_t seed = 0;
    for (int layer = 0; layer < shape.layers; ++layer) {
      for (const int64_t width : {shape.hidden, shape.hidden, shape.hidden, shape.ffn})
        work.add({RotationKind::qr, 1024, ++seed, true}, width);
    }
    EXPECT_LT(work.total(), most_orthogonal_work(static_cast<uint64_t>(shape.bytes)))
        << shape.hidden;
  }
}

TEST(RotatorQr, matrixIsHaarDistributed) {
  // Without the sign of R's diagonal the first entry would always be negative.
  int positive = 0;
  double squares = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::vector<float> unit(32);
    unit[0] = 1;
    const float first = applied({RotationKind::qr, 32, seed, true}, unit)[0];
    positive += first > 0 ? 1 : 0;
    squares += static_cast<double>(first) * static_cast<double>(first);
  }
  EXPECT_NEAR(positive, 100, 35);
  EXPECT_NEAR(squares / 200 * 32, 1.0, 0.3);  // E[q_00^2] = 1 / n
}

TEST(Rotator, refusesBadShapes) {
  EXPECT_THROW(Rotator({RotationKind::hadamard, 48, 1, true}, 96), Error);
  EXPECT_THROW(Rotator({RotationKind::hadamard, 16, 1, true}, 96), Error);
  EXPECT_THROW(Rotator({RotationKind::hadamard, 2048, 1, true}, 4096), Error);
  EXPECT_THROW(Rotator({RotationKind::hadamard, -128, 1, true}, 128), Error);
  EXPECT_THROW(Rotator({RotationKind::hadamard, 128, 1, true}, 33), Error);
  EXPECT_THROW(Rotator({RotationKind::qr, 128, 1, true}, 0), Error);
}

TEST(RotationKindName, roundTripsAndRefusesOthers) {
  for (RotationKind kind : {RotationKind::none, RotationKind::hadamard, RotationKind::qr})
    EXPECT_EQ(parse_rotation_kind(rotation_kind_name(kind)), kind);
  try {
    parse_rotation_kind("dct");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
  }
}

}  // namespace
}  // namespace walsh
