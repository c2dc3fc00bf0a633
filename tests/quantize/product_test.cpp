// Tests the product encoder: its search against plain enumeration, scales, codebooks of tensors,
// bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/cpu.h"
#include "base/half.h"
#include "codec/product/product.h"
#include "codec/product/product_search.h"
#include "codec/product/product_training.h"
#include "quantize/encoded.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using detail::kProductSteps;
using detail::kSearchVectors;
using detail::ProductSearch;
using detail::ProductTable;
using detail::ProductTargets;
using testing_support::decoded;
using testing_support::encode;
using testing_support::Encoded;
using testing_support::halves;
using testing_support::Matrix;
using testing_support::normal_matrix;
using testing_support::stored_bytes;

class ProductOnEachIsa : public testing::Test {
 protected:
  ~ProductOnEachIsa() override { force_isa(""); }
};

ProductTable random_table(uint64_t seed, int limit) {
  Random random(seed);
  ProductTable table;
  for (auto& entry : table.entries) {
    for (int16_t& v : entry)
      v = static_cast<int16_t>(static_cast<int>(random.below(2 * limit + 1)) - limit);
  }
  table.residual = static_cast<int16_t>(random.below(400));
  return table;
}

ProductTargets random_targets(uint64_t seed, int limit) {
  Random random(seed);
  ProductTargets targets;
  for (auto& half : targets.pairs) {
    for (auto& pair : half) {
      for (int16_t& x : pair)
        x = static_cast<int16_t>(static_cast<int>(random.below(2 * limit + 1)) - limit);
    }
  }
  return targets;
}

TEST_F(ProductOnEachIsa, SearchFindsTheFirstEntryOfLeastCost) {
  for (const int limit : {3, 40, 1664}) {  // few distinct entries: many ties
    const ProductTable table = random_table(7, limit);
    for (const int reach : {limit, detail::kLargestProductTarget}) {
      const ProductTargets targets = random_targets(static_cast<uint64_t>(reach), reach);
      for (const int vectors : {8, 16, 24, 32}) {
        for (const Isa isa : supported_isas()) {
          force_isa(isa_name(isa));
          uint8_t pointers[kSearchVectors];
          detail::product_search_kernel()(table, targets, vectors, pointers);
          for (int v = 0; v < vectors; ++v) {
            int64_t best = std::numeric_limits<int64_t>::max();
            int first = -1;
            for (int p = 0; p < kProductEntries; ++p) {
              int64_t cost = 0;
              for (int i = 0; i < kProductValues; ++i) {
                const int64_t d =
                    std::abs(targets.pairs[i / 2][v][i % 2] - table.entries[p][i]) - table.residual;
                cost += d * d;
              }
              if (cost >= best) continue;
              best = cost;
              first = p;
            }
            ASSERT_EQ(pointers[v], first) << isa_name(isa) << " vector " << v << " of " << vectors;
          }
        }
      }
    }
  }
}

TEST_F(ProductOnEachIsa, BytesAreTheSameForEveryIsaAndThreadCount) {
  for (const char* name : {"pq3", "pq3:layer"}) {
    const Matrix m = normal_matrix(34, 288, 3);
    std::vector<std::byte> first;
    for (const Isa isa : supported_isas()) {
      force_isa(isa_name(isa));
      for (const int threads : {1, 3}) {
        const auto bytes = stored_bytes(encode(get_format(name), m, {}, threads).tensor);
        if (first.empty()) first = bytes;
        EXPECT_TRUE(bytes == first) << name << " " << isa_name(isa) << " threads " << threads;
      }
    }
  }
}

TEST(ProductEncoder, ReachesItsErrorOnNormalWeights) {
  const Matrix m = normal_matrix(64, 1024, 4);
  EXPECT_LT(encode(get_format("pq3"), m).nmse(), 0.0260);
  EncodeOptions fast;
  fast.effort = Effort::fast;
  const double one_start = encode(get_format("pq3"), m, fast).nmse();
  EXPECT_LT(one_start, 0.0268);
  EXPECT_GT(one_start, encode(get_format("pq3"), m).nmse());
  EncodeOptions gain;
  gain.scale_rule = ScaleRule::shape_gain;
  EXPECT_LT(encode(get_format("pq3"), m, gain).nmse(), 0.0300);
}

// Every decoded weight is the nearest that its entry allows: the sign cannot be improved, and no
// scale near the stored one is better for the chosen codes.
TEST(ProductEncoder, SignsAndScalesAreOptimalForTheChosenEntries) {
  const Format& format = get_format("pq3");
  Matrix m = normal_matrix(4, 128, 5);
  const Encoded e = encode(format, m);
  const ProductCode& code = format.product;
  const auto scales = halves(e.tensor.pass[0].scales);
  Rotation rotation = e.tensor.rotation[0];
  const Rotator rotator(rotation, 128);
  for (int64_t row = 0; row < m.rows; ++row) {
    std::vector<float> x(m.row(row), m.row(row) + 128);
    rotator.apply(x.data());
    const std::byte* codes = e.tensor.pass[0].codes.data() + row * product_row_bytes(128);
    const double scale = f16_to_f32(scales[static_cast<size_t>(row)]);
    const double unit = scale * static_cast<double>(code.unit);
    double xq = 0, qq = 0;
    for (int64_t col = 0; col < 128; ++col) {
      const int entry =
          code.codebook[product_pointer(codes, col) * kProductValues + product_value(col)];
      const double target = static_cast<double>(x[static_cast<size_t>(col)]) / unit;
      const int level = product_level_i8(code, code.codebook, codes, col);
      // The grid of the search is a sixteenth of a unit.
      if (std::fabs(target - entry) > 1.0 / kProductSteps) {
        EXPECT_EQ(level > entry, target > entry) << col;
      }
      xq += static_cast<double>(x[static_cast<size_t>(col)]) * level;
      qq += level * level;
    }
    EXPECT_NEAR(xq / qq / unit, 1.0, 0.03) << "a fixed point but for the last assignment";
  }
}

TEST(ProductEncoder, ZeroGroupsDecodeToZerosAndTinyOrHugeOnesSurvive) {
  for (const char* name : {"pq3", "pq3:layer"}) {
    Matrix m{3, 256, std::vector<float>(3 * 256, 0.0f)};
    for (int64_t i = 0; i < 128; ++i) {
      m.values[static_cast<size_t>(i)] = 1e-30f * static_cast<float>(i);           // below fp16
      m.values[static_cast<size_t>(256 + i)] = 1e30f * static_cast<float>(i % 7);  // above fp16
    }
    const Encoded e = encode(get_format(name), m);
    const auto scales = halves(e.tensor.pass[0].scales);
    EXPECT_EQ(scales[1], 0) << "the zero group";
    EXPECT_EQ(scales[2], f32_to_f16(65504.0f)) << "scales saturate";
    const auto y = decoded(e.tensor);
    for (size_t i = 0; i < 256; ++i)
      EXPECT_EQ(y[i], 0.0f);
    for (size_t i = 512; i < 768; ++i)
      EXPECT_EQ(y[i], 0.0f);
    for (float v : y)
      EXPECT_TRUE(std::isfinite(v));
  }
}

TEST(ProductEncoder, RefusesNanAndInfinityWithTheirPlace) {
  for (const char* name : {"pq3", "pq3:layer"}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Matrix m = normal_matrix(5, 96, 6);
      m.values[3 * 96 + 17] = bad;
      try {
        encode(get_format(name), m);
        FAIL() << name;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::bad_input);
        EXPECT_NE(error.reason().find("row 3, column 17"), std::string::npos) << error.reason();
      }
    }
  }
}

TEST(ProductTraining, LearnsWeightsThatAreNotNormal) {
  // Weights have three values: far from the normal distribution that the universal codebook
  // expects.
  Random random(8);
  Matrix m{64, 256, std::vector<float>(64 * 256)};
  for (float& v : m.values)
    v = static_cast<float>(static_cast<int>(random.below(3)) - 1);
  Rotation rotation[2];
  rotation[0].kind = RotationKind::none;
  ThreadPool pool(1);
  const auto read_rows = [&](int64_t begin, int64_t end, float* out) {
    std::copy(m.row(begin), m.row(end), out);
  };
  const auto nmse = [&](const char* name) {
    double error = 0, norm = 0;
    encode_tensor(get_format(name), rotation, {}, m.rows, m.cols, read_rows, pool, &error, &norm);
    return error / norm;
  };
  EXPECT_LT(nmse("pq3:layer"), 0.6 * nmse("pq3"));
}

TEST(ProductTraining, CodebooksLeaveRoomForTheResidual) {
  Matrix m = normal_matrix(32, 256, 9);
  for (size_t i = 0; i < m.values.size(); i += 97)
    m.values[i] *= 30;  // outliers pull entries outwards
  const Encoded e = encode(get_format("pq3:layer"), m);
  ASSERT_EQ(e.tensor.pass[0].codebook.size(), size_t{kCodebookBytes});
  EXPECT_NO_THROW(check_codebook(e.tensor.format->product, product_codebook(e.tensor)));
}

}  // namespace
}  // namespace walsh
