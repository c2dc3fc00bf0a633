#include "kernels/cuda/gemm/batch_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "kernels/cuda/gemm_data.h"

namespace walsh::cuda {
namespace {

using namespace test;
using detail::BatchShape;

class BatchGemmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
    use_device(devices()[0].index);
    if (!BatchSpace::is_supported()) GTEST_SKIP() << "the device has no wgmma";
  }
};

struct Case {
  const char* name;
  int64_t rows, cols, m;
  int planes = 1;
  bool add = false;
  BatchShape shape{};
};

void expect_batch(const Case& c) {
  RandomWeights w(get_format(c.name), c.rows, c.cols, 31);
  w.upload();
  const int64_t ldy = c.rows + 3, width = w.pass[0].cols;
  const Buffer y = to_device(std::vector<float>(static_cast<size_t>(c.m * ldy), 2.0f));
  const std::vector<float> bias(static_cast<size_t>(c.rows), 0.5f);
  const Buffer device_bias = to_device(bias);
  const int64_t used = padded_cols(*w.tensor.format, c.cols);
  const RandomActivations x[2] = {{c.m, used, width, 128, c.planes, 8},
                                  {c.m, used, width, 128, c.planes, 9}};
  const int passes = w.tensor.format->passes;
  Matmul p;
  std::vector<float> joined, inputs;  // both passes as one long row
  std::vector<float> part[2];
  for (int pass = 0; pass < passes; ++pass) {
    p.pass[pass] = &w.pass[pass];
    p.input[pass] = &x[pass].device;
    part[pass] = integer_weights(w, pass);
  }
  for (int64_t row = 0; row < std::max(c.rows, c.m); ++row) {
    for (int pass = 0; pass < passes; ++pass) {
      const auto& in = x[pass].values;
      if (row < c.rows)
        joined.insert(joined.end(), part[pass].begin() + row * width,
                      part[pass].begin() + (row + 1) * width);
      if (row < c.m)
        inputs.insert(inputs.end(), in.begin() + row * width, in.begin() + (row + 1) * width);
    }
  }
  p.bias = device_bias.as<float>();
  p.y = y.as<float>();
  p.ldy = ldy;
  p.add = c.add;
  const BatchSpace space(c.m, width, c.planes);
  ASSERT_TRUE(space.can_multiply(p, c.m)) << c.name;
  space.multiply({&p, 1}, c.m, c.shape, nullptr);
  const std::vector<float> got = to_host<float>(y);
  const Outcome o =
      compare(got, ldy, joined, inputs, c.rows, width * passes, c.m, bias, c.add ? 2.0f : 0.0f, 0);
  EXPECT_LT(o.worst, 1) << c.name << " " << c.rows << " x " << c.cols << " m = " << c.m
                        << " planes " << c.planes << " shape " << c.shape.vectors << " x "
                        << c.shape.groups << " at " << o.where;
  for (int64_t t = 0; t < c.m; ++t)
    for (int64_t row = c.rows; row < ldy; ++row)
      ASSERT_EQ(got[static_cast<size_t>(t * ldy + row)], 2.0f)
          << c.name << " wrote beyond its rows";
}

TEST_F(BatchGemmTest, every_format_with_ragged_vectors) {
  int64_t m = 17;
  for (const Format& format : all_formats()) {
    if (!gpu_code(format) || format.rotation_block == 0) continue;
    // Rows of trellis codes that end with several column blocks have scales per 32 columns.
    const auto knows = [&](int64_t cols) {
      return BatchSpace::knows(allocate_matrix(format, 0, 16, cols));
    };
    if (!knows(896)) continue;
    expect_batch({format.name.data(), 70, 896, m, 1, true});
    expect_batch({format.name.data(), 300, knows(1376) ? 1376 : 1280, 256 - m, 1, false});
    m = m * 5 % 223 + 17;
  }
}

TEST_F(BatchGemmTest, every_shape_of_blocks) {
  for (const char* name : {"itq3_s", "tq2", "tq4", "tc3:h", "tc3.5:h", "tc4:h"}) {
    for (const BatchShape& shape : detail::kBatchShapes) {
      expect_batch({name, 290, 1280, 131, 1, true, shape});
      expect_batch({name, 1024, 256, 31, 1, false, shape});
      expect_batch({name, 33, 4096, 200, 1, false, shape});
    }
  }
}

TEST_F(BatchGemmTest, every_number_of_vectors) {
  for (int64_t m = 17; m <= 256; m += m < 40 ? 1 : 13)
    expect_batch({m % 2 ? "itq3_s" : "tc3:h", 48, 768, m});
}

// There are whole blocks of results, and so many of them that every multiprocessor has several.
TEST_F(BatchGemmTest, many_rows) {
  expect_batch({"tq3", 256 * 150, 256, 20});
  expect_batch({"itq3_s", 128 * 300 + 5, 512, 70});
  expect_batch({"tq4", 1, 4096, 18});
}

TEST_F(BatchGemmTest, two_planes) {
  expect_batch({"itq3_s", 64, 768, 70, 2, true});
  expect_batch({"tq4", 257, 256, 129, 2, false});
}

TEST_F(BatchGemmTest, products_of_different_formats_share_their_inputs) {
  const char* names[] = {"itq3_s", "itq3_s", "tc3:h"};
  const RandomActivations x(150, 512, 512, 128, 1, 4);
  std::vector<std::unique_ptr<RandomWeights>> weights;
  std::vector<Buffer> y;
  std::vector<Matmul> products;
  for (size_t i = 0; i < 3; ++i) {
    auto& w = *weights.emplace_back(std::make_unique<RandomWeights>(
        get_format(names[i]), 40 + 300 * static_cast<int64_t>(i), 512, 60 + i));
    w.upload();
    y.push_back(to_device(std::vector<float>(static_cast<size_t>(150 * w.tensor.rows), 0.0f)));
    Matmul p;
    p.pass[0] = &w.pass[0];
    p.input[0] = &x.device;
    p.y = y.back().as<float>();
    p.ldy = w.tensor.rows;
    products.push_back(p);
  }
  const BatchSpace space(150, 512, 1);
  for (int again = 0; again < 2; ++again)
    space.multiply(products, 150, nullptr);
  for (size_t i = 0; i < 3; ++i) {
    const RandomWeights& w = *weights[i];
    const Outcome o = compare(to_host<float>(y[i]), w.tensor.rows, integer_weights(w, 0), x.values,
                              w.tensor.rows, 512, 150, {}, 0, 0);
    EXPECT_LT(o.worst, 1) << names[i] << " " << o.where;
  }
}

// Parts of results are added up in one order, whichever block comes last.
TEST_F(BatchGemmTest, the_same_bits_every_time_and_nans_stay_in_their_vector) {
  RandomWeights w(get_format("itq3_s"), 4096, 1024, 2);
  w.upload();
  RandomActivations x(40, 1024, 1024, 128, 1, 4);
  const BatchSpace space(40, 1024, 1);
  const auto run = [&] {
    const Buffer y = to_device(std::vector<float>(40 * 4096, 0.0f));
    Matmul p;
    p.pass[0] = &w.pass[0];
    p.input[0] = &x.device;
    p.y = y.as<float>();
    p.ldy = 4096;
    space.multiply({&p, 1}, 40, nullptr);
    return to_host<float>(y);
  };
  const std::vector<float> before = run();
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(run(), before);
  std::vector<float> scales = to_host<float>(x.device.scales);
  scales[7 * 8 + 2] = std::numeric_limits<float>::quiet_NaN();
  x.device.scales = to_device(scales);
  const std::vector<float> after = run();
  for (size_t i = 0; i < after.size(); ++i) {
    if (i / 4096 == 7) {
      ASSERT_TRUE(std::isnan(after[i]));
    } else {
      ASSERT_EQ(after[i], before[i]);
    }
  }
}

// Blocks of the launch have some blocks of results alone, and share a rest.
TEST_F(BatchGemmTest, whole_blocks_of_results_and_parts_of_others) {
  for (const BatchShape& shape : detail::kBatchShapes) {
    const int64_t rows = int64_t{shape.groups} * 64 * 150;
    expect_batch({"tq3", rows, 512, shape.vectors > 64 ? 33 : 100, 1, true, shape});
  }
}

TEST(BatchShapes, HaveFewVectorsToSpare) {
  for (const int64_t rows : {1, 4096, 28672, 128256}) {
    for (int64_t m = 17; m <= kMaxBatch; ++m) {
      const int64_t vectors = detail::batch_shape({{rows}}, 4096, m, 132).vectors;
      const int64_t padded = (m + vectors - 1) / vectors * vectors;
      EXPECT_LT(padded, std::max<int64_t>(2 * m, 33)) << rows << " rows, " << m << " vectors";
    }
  }
}

TEST_F(BatchGemmTest, refuses_what_it_cannot_multiply) {
  RandomWeights fine(get_format("q8_0"), 32, 512, 2);
  fine.upload();
  const RandomActivations x(40, 512, 512, 32, 2, 4);
  const Buffer y = to_device(std::vector<float>(40 * 32, 0.0f));
  Matmul p;
  p.pass[0] = &fine.pass[0];
  p.input[0] = &x.device;
  p.y = y.as<float>();
  p.ldy = 32;
  const BatchSpace space(40, 512, 2);
  EXPECT_FALSE(space.can_multiply(p, 40));
  EXPECT_ANY_THROW(space.multiply({&p, 1}, 40, nullptr));
  EXPECT_FALSE(BatchSpace().can_multiply(p, 40));
}

}  // namespace
}  // namespace walsh::cuda
