#include "model/op_count.h"

#include <gtest/gtest.h>

#include "model/synthetic.h"
#include "model_support.h"

namespace walsh {
namespace {

// The text claims "from 16.78 million to about 1.18 million", 93 % fewer.
TEST(OpCount, ReproducesTheArithmeticOfTheProductCode) {
  const OpCount dense = count_product(get_format("f16"), 4096, 4096, 0);
  EXPECT_EQ(dense.multiplications, 16777216u);
  EXPECT_EQ(dense.lookups, 0u);
  const OpCount table = count_product(get_format("pq3"), 4096, 4096, 1);
  EXPECT_EQ(table.multiplications, 1048576u + 131072u);
  EXPECT_EQ(table.lookups, 4096u * 1024u);
  EXPECT_NEAR(
      1 - static_cast<double>(table.multiplications) / static_cast<double>(dense.multiplications),
      0.93, 0.001);
}

TEST(OpCount, ATableIsFilledOnceForAllRows) {
  const OpCount one = count_product(get_format("pq3"), 1, 256, 1);
  const OpCount two = count_product(get_format("pq3"), 2, 256, 1);
  EXPECT_EQ(one.multiplications, 64u * 256 * 4 + 2);
  EXPECT_EQ(two.multiplications - one.multiplications, 2u) << "a scale per group";
  EXPECT_EQ(two.lookups, 2 * one.lookups);
  EXPECT_EQ(two.additions - one.additions, 64u + 256 + 2);
  EXPECT_EQ(count_product(get_format("pq3"), 1, 250, 1), one) << "rows are padded to 32";
  const OpCount planes = count_product(get_format("pq3"), 1, 256, 2);
  EXPECT_EQ(planes.multiplications, 2 * one.multiplications);
  EXPECT_EQ(planes.lookups, 2 * one.lookups);
}

TEST(OpCount, ScalarCodesMultiplyEveryWeightAndScale) {
  const OpCount tq3 = count_product(get_format("tq3"), 10, 256, 1);
  EXPECT_EQ(tq3.multiplications, 10u * (256 + 2));
  EXPECT_EQ(tq3.lookups, 10u * 256);
  EXPECT_EQ(count_product(get_format("tq3"), 10, 256, 2).multiplications, 2 * tq3.multiplications);
  const OpCount padded = count_product(get_format("tq3"), 10, 250, 1);
  EXPECT_EQ(padded, tq3);
  EXPECT_EQ(count_product(get_format("q8_0"), 10, 256, 1).lookups, 0u);
  EXPECT_EQ(count_product(get_format("itq3_s"), 10, 256, 1).multiplications, 10u * (256 + 1 + 1));
  EXPECT_EQ(count_product(get_format("tq4+4"), 10, 256, 1).multiplications, 2 * 10u * (256 + 2));
}

TEST(OpCount, TrellisCodesAlsoMultiplyTheState) {
  const OpCount tc3 = count_product(get_format("tc3:h"), 16, 512, 1);
  EXPECT_EQ(tc3.lookups, 0u);
  EXPECT_EQ(tc3.multiplications, 16u * 512 + 16 * 512 / 2 + 16 * 2 + 16);
  EXPECT_EQ(count_product(get_format("tc3:hq"), 16, 512, 1).lookups, 16u * 512);
  EXPECT_EQ(count_product(get_format("tc3:h"), 3, 512, 1), tc3) << "rows are padded to tiles";
}

TEST(OpCount, AHadamardTransformCostsItsButterflies) {
  const OpCount h = count_transform({RotationKind::hadamard, 128, 1, true}, 160);
  EXPECT_EQ(h.transforms, 1u);
  EXPECT_EQ(h.multiplications, 160u);
  EXPECT_EQ(h.additions, 128u * 7 + 32 * 5);
  EXPECT_EQ(count_transform({RotationKind::qr, 128, 1, true}, 160).multiplications,
            128u * 128 + 32 * 32);
  EXPECT_EQ(count_transform({RotationKind::none, 32, 0, false}, 160), OpCount{});
}

TEST(OpCount, ALayerIsTheSumOfItsMatricesAndInputs) {
  ThreadPool pool(1);
  const Format& tq3 = get_format("tq3");
  SyntheticSource source("tiny", {&tq3, &tq3, &tq3});
  LoadOptions options;
  options.pool = &pool;
  const Model model = Model::load(source, parse_config(source.config_json(), "test"), options);
  const ModelConfig& c = model.config;
  OpCount expected;
  for (const Linear& linear : model.layers[0].matrices)
    expected += count_product(tq3, linear.rows, linear.cols, 1);
  for (const ActivationDesc& a : c.layers[0].activations)
    expected += count_transform({RotationKind::hadamard, 128, 0, true}, padded_cols(tq3, a.width));
  const OpCount layer = count_layer(model, 0);
  EXPECT_EQ(layer, expected);
  EXPECT_EQ(layer.transforms, 4u);
  EXPECT_EQ(count_head(model).transforms, 1u);
  EXPECT_EQ(count_embedding(model).transforms, 1u);
}

TEST(OpCount, ATokenIsMultipliedWithItsOwnExpertsOnly) {
  ThreadPool pool(1);
  const Format& tq3 = get_format("tq3");
  SyntheticSource source("tiny-moe", {&tq3, &tq3, &tq3});
  LoadOptions options;
  options.pool = &pool;
  const Model model = Model::load(source, parse_config(source.config_json(), "test"), options);
  const LayerDesc& layer = model.config.layers[0];
  const ExpertsDesc& e = layer.experts;
  OpCount expected;
  uint64_t bytes = 0, unused = 0;
  for (size_t i = 0; i < layer.matrices.size(); ++i) {
    const Linear& linear = model.layers[0].matrices[i];
    if (layer.matrices[i].expert >= e.chosen) {
      unused += linear.bytes();
      continue;
    }
    bytes += linear.bytes();
    expected += count_product(*linear.format, linear.rows, linear.cols, 1);
  }
  const auto rotate = [&](const ActivationDesc& a) {
    return count_transform({RotationKind::hadamard, 128, 0, true}, padded_cols(tq3, a.width));
  };
  for (const ActivationDesc& a : layer.activations)
    expected += rotate(a);
  for (int64_t i = 1; i < e.chosen; ++i)
    expected += rotate(layer.input_of(layer.matrix(e.down(i))));
  EXPECT_EQ(count_layer(model, 0), expected);
  const auto size = [&](int index) { return model.layers[0].matrix(index).bytes(); };
  EXPECT_EQ(unused, 6 * (size(e.gate(0)) + size(e.up(0)) + size(e.down(0))));
  EXPECT_EQ(model.bytes_per_token(), 2 * bytes + model.head.bytes() + tensor_bytes(tq3, 1, 256));
}

}  // namespace
}  // namespace walsh
