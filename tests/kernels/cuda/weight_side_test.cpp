#include "kernels/cuda/weight_side/weight_side.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/cuda/random_weights.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using namespace test;

class WeightSideTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
    use_device(devices()[0].index);
  }
};

void expect_product(const char* name, int64_t rows, int64_t cols, int64_t m, bool add,
                    int block = 0) {
  RandomWeights w(get_format(name), rows, cols, 41);
  if (block != 0) w.tensor.rotation[0].block = block;
  w.upload();
  const bool vector = m <= kWeightSideVectors;
  const int64_t padded = padded_cols(*w.tensor.format, cols), ldy = rows + 1;
  const RandomRows x(m, cols, padded, vector ? DType::f32 : DType::bf16, 6);
  const Buffer bias = to_device(std::vector<float>(static_cast<size_t>(rows), 0.5f));
  const Buffer y = to_device(std::vector<float>(static_cast<size_t>(m * ldy), 2.0f));
  RowMatmul p = w.product();
  p.bias = bias.as<float>();
  p.y = y.as<float>();
  p.ldy = ldy;
  p.add = add;
  multiply_weight_side({&p, 1}, x.rows, m, nullptr);
  // f16 levels are off by 2^-11 each, bf16 weights by 2^-9.
  const Outcome o = compare(to_host<float>(y), ldy, w.decoded(), x.values, rows, cols, m, {},
                            0.5f + (add ? 2.0f : 0.0f), vector ? 0x1p-11 : 0x1p-9);
  EXPECT_LT(o.worst, 1) << name << " " << rows << " x " << cols << " m = " << m << " block "
                        << block;
}

TEST_F(WeightSideTest, vectors_meet_every_format_that_is_rotated_by_blocks_of_up_to_256) {
  int formats = 0;
  for (const Format& format : all_formats()) {
    if (!scalar_code(format) || format.rotation_block == 0 || format.rotation_block > 256) continue;
    ++formats;
    for (int64_t m : {1, 3, 8}) {
      expect_product(format.name.data(), 70, 896, m, m == 3);
      expect_product(format.name.data(), 33, 1376, m, false);
    }
  }
  EXPECT_GE(formats, 11);
}

TEST_F(WeightSideTest, matrices_meet_every_format) {
  for (const Format& format : all_formats()) {
    if (!scalar_code(format) || format.rotation_block == 0 || format.rotation_block > 256) continue;
    expect_product(format.name.data(), 70, 896, 9, true);
    expect_product(format.name.data(), 140, 1376, 131, false);
  }
}

TEST_F(WeightSideTest, short_rows_and_other_blocks) {
  for (int64_t m : {1, 20}) {
    expect_product("itq3_s", 5, 32, m, false);
    expect_product("tq3", 17, 2080, m, false, 64);
    expect_product("itq3_s", 16, 3040, m, false, 32);
    expect_product("tq4", 16, 3040, m, false, 256);
  }
}

TEST_F(WeightSideTest, refuses_unrotated_weights_large_blocks_and_other_inputs) {
  RandomWeights plain(get_format("q8_0"), 16, 256, 1), wide(get_format("tq3:full"), 16, 1024, 1),
      good(get_format("itq3_s"), 16, 256, 1);
  for (RandomWeights* w : {&plain, &wide, &good})
    w->upload();
  RowMatmul p = plain.product();
  EXPECT_FALSE(can_rotate_weights({&p, 1}));
  p = wide.product();
  EXPECT_FALSE(can_rotate_weights({&p, 1}));
  p = good.product();
  EXPECT_TRUE(can_rotate_weights({&p, 1}));
  const RandomRows x(1, 256, 256, DType::bf16, 1);
  EXPECT_THROW(multiply_weight_side({&p, 1}, x.rows, 1, nullptr), Error);
}

}  // namespace
}  // namespace walsh::cuda
