#include "kernels/cuda/gemm/int8_tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "kernels/cuda/gemm_data.h"

namespace walsh::cuda {
namespace {

using namespace test;

class Int8TileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
    use_device(devices()[0].index);
  }
};

enum class Way { chosen, large, medium, small };

void run_many(Way way, const Matmul& p, int64_t m) {
  using detail::TileShape;
  if (way == Way::chosen) return int8_gemm({&p, 1}, m, nullptr);
  detail::gemm_by_tiles({&p, 1}, m,
                        way == Way::large    ? TileShape::large
                        : way == Way::medium ? TileShape::medium
                                             : TileShape::small,
                        nullptr);
}

void expect_many(const char* name, int64_t rows, int64_t cols, int64_t m, int group, int planes,
                 bool add, Way way = Way::chosen) {
  RandomWeights w(get_format(name), rows, cols, 31);
  w.upload();
  const int64_t ldy = rows + 3, width = w.pass[0].cols;
  const Buffer y = to_device(std::vector<float>(static_cast<size_t>(m * ldy), 2.0f));
  const std::vector<float> bias(static_cast<size_t>(rows), 0.5f);
  const Buffer device_bias = to_device(bias);
  const int64_t used = padded_cols(*w.tensor.format, cols);
  const RandomActivations x[2] = {{m, used, width, group, planes, 8},
                                  {m, used, width, group, planes, 9}};
  Matmul p;
  std::vector<float> joined, inputs;  // both passes as one long row
  const int passes = w.tensor.format->passes;
  std::vector<float> part[2] = {integer_weights(w, 0),
                                passes > 1 ? integer_weights(w, 1) : std::vector<float>()};
  for (int pass = 0; pass < passes; ++pass) {
    p.pass[pass] = &w.pass[pass];
    p.input[pass] = &x[pass].device;
  }
  for (int64_t row = 0; row < std::max(rows, m); ++row) {
    for (int pass = 0; pass < passes; ++pass) {
      const auto& in = x[pass].values;
      if (row < rows)
        joined.insert(joined.end(), part[pass].begin() + row * width,
                      part[pass].begin() + (row + 1) * width);
      if (row < m)
        inputs.insert(inputs.end(), in.begin() + row * width, in.begin() + (row + 1) * width);
    }
  }
  p.bias = device_bias.as<float>();
  p.y = y.as<float>();
  p.ldy = ldy;
  p.add = add;
  run_many(way, p, m);
  // Scales times sub-scales are rounded to f16 when weights are packed.
  const double relative = w.tensor.format->code[0].sub_group != 0 ? 0x1p-11 : 0;
  const Outcome o = compare(to_host<float>(y), ldy, joined, inputs, rows, width * passes, m, bias,
                            add ? 2.0f : 0.0f, relative);
  EXPECT_LT(o.worst, 1) << name << " " << rows << " x " << cols << " m = " << m << " group "
                        << group << " planes " << planes << " at " << o.where;
}

TEST_F(Int8TileTest, multiply_every_format) {
  for (const Format& format : all_formats()) {
    if (!scalar_code(format)) continue;
    const int group = format.rotation_block != 0 ? 128 : 32;
    expect_many(format.name.data(), 70, 896, 37, group, format.activation_planes, true);
    expect_many(format.name.data(), 300, 1376, 17, group, format.activation_planes, false);
  }
}

TEST_F(Int8TileTest, multiply_with_other_groups_planes_and_sizes) {
  expect_many("tq4", 33, 512, 65, 32, 1, false);
  expect_many("itq3_s", 64, 768, 70, 32, 1, false);
  expect_many("itq3_s", 64, 768, 70, 128, 2, true);
  expect_many("tq4", 257, 256, 129, 128, 2, false);
  expect_many("tq3", 1, 4096, 18, 128, 1, false);
}

TEST_F(Int8TileTest, of_every_shape_agree_with_the_sums) {
  for (Way way : {Way::large, Way::medium, Way::small}) {
    expect_many("itq3_s", 290, 1280, 131, 128, 1, true, way);
    expect_many("tq2", 33, 512, 9, 128, 1, false, way);
    expect_many("tq4", 270, 768, 140, 128, 1, false, way);
    expect_many("q8_0", 260, 512, 130, 32, 2, false, way);
    expect_many("itq3_s8", 70, 768, 20, 128, 1, false, way);
  }
}

TEST_F(Int8TileTest, three_products_of_different_formats_share_their_inputs) {
  const char* names[] = {"itq3_s", "itq3_s", "tq4"};
  const RandomActivations x(50, 512, 512, 128, 1, 4);
  std::vector<std::unique_ptr<RandomWeights>> weights;
  std::vector<Buffer> y;
  std::vector<Matmul> products;
  for (size_t i = 0; i < 3; ++i) {
    auto& w = *weights.emplace_back(std::make_unique<RandomWeights>(
        get_format(names[i]), 40 + 30 * static_cast<int64_t>(i), 512, 60 + i));
    w.upload();
    y.push_back(to_device(std::vector<float>(static_cast<size_t>(50 * w.tensor.rows), 0.0f)));
    Matmul p;
    p.pass[0] = &w.pass[0];
    p.input[0] = &x.device;
    p.y = y.back().as<float>();
    p.ldy = w.tensor.rows;
    products.push_back(p);
  }
  int8_gemm(products, 50, nullptr);
  for (size_t i = 0; i < 3; ++i) {
    const RandomWeights& w = *weights[i];
    const Outcome o = compare(to_host<float>(y[i]), w.tensor.rows, integer_weights(w, 0), x.values,
                              w.tensor.rows, 512, 50, {}, 0, 0);
    EXPECT_LT(o.worst, 1) << names[i] << " " << o.where;
  }
}

TEST_F(Int8TileTest, keep_a_nan_in_its_vector_and_neighbours_apart) {
  RandomWeights w(get_format("itq3_s"), 48, 512, 2);
  w.upload();
  RandomActivations x(40, 512, 512, 128, 1, 4);
  const auto run = [&] {
    const Buffer y = to_device(std::vector<float>(40 * 48, 0.0f));
    Matmul p;
    p.pass[0] = &w.pass[0];
    p.input[0] = &x.device;
    p.y = y.as<float>();
    p.ldy = 48;
    int8_gemm({&p, 1}, 40, nullptr);
    return to_host<float>(y);
  };
  const std::vector<float> before = run();
  std::vector<float> scales = to_host<float>(x.device.scales);
  scales[7 * 4 + 2] = std::numeric_limits<float>::quiet_NaN();
  x.device.scales = to_device(scales);
  const std::vector<float> after = run();
  for (size_t i = 0; i < after.size(); ++i) {
    if (i / 48 == 7) {
      EXPECT_TRUE(std::isnan(after[i]));
    } else {
      EXPECT_EQ(after[i], before[i]);
    }
  }
}

}  // namespace
}  // namespace walsh::cuda
