// Tests how families with experts read config.json, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arch/plan.h"
#include "config_support.h"

namespace walsh {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using namespace test;

Json qwen3_moe() {
  Json json = of_family("qwen3_moe", "Qwen3MoeForCausalLM");
  json["num_experts"] = 6;
  json["num_experts_per_tok"] = 2;
  json["moe_intermediate_size"] = 32;
  json["norm_topk_prob"] = true;
  return json;
}

Json glm4_moe() {
  Json json = of_family("glm4_moe", "Glm4MoeForCausalLM");
  json["n_routed_experts"] = 8;
  json["num_experts_per_tok"] = 4;
  json["moe_intermediate_size"] = 32;
  json["n_group"] = 4;
  json["topk_group"] = 2;
  return json;
}

std::vector<bool> has_experts(const ModelConfig& config) {
  std::vector<bool> list;
  for (const LayerDesc& layer : config.layers)
    list.push_back(layer.experts.present());
  return list;
}

TEST(ExpertsConfig, TheRouterAndAllExpertsReadOneActivation) {
  const ModelConfig config = parse(qwen3_moe());
  const LayerDesc& layer = config.layers[1];
  const ExpertsDesc& e = layer.experts;
  EXPECT_EQ(e.count, 6);
  EXPECT_EQ(layer.mlp.width, 0);
  const MatrixDesc& router = layer.matrix(e.router);
  EXPECT_EQ(router.weight, "model.layers.1.mlp.gate.weight");
  EXPECT_TRUE(router.plain);
  for (int64_t i = 0; i < e.count; ++i) {
    EXPECT_EQ(layer.matrix(e.gate(i)).input, router.input);
    EXPECT_EQ(layer.matrix(e.up(i)).input, router.input);
    EXPECT_EQ(layer.matrix(e.down(i)).input, layer.matrix(e.down(0)).input);
    EXPECT_EQ(layer.matrix(e.down(i)).expert, i);
  }
  const MatrixDesc& down = layer.matrix(e.down(5));
  EXPECT_EQ(down.weight, "model.layers.1.mlp.experts.5.down_proj.weight");
  EXPECT_EQ(down.rows, 64);
  EXPECT_EQ(down.cols, 32);
}

TEST(ExpertsConfig, ThePlanKeepsRoutersApartAndKnowsTheExpertOfAMatrix) {
  const ModelPlan plan = make_plan(parse(qwen3_moe()));
  const Site& site = plan.sites[2];
  EXPECT_THAT(site.plain, ElementsAre("model.layers.0.mlp.gate.weight"));
  EXPECT_EQ(site.matrices.size(), 12u);
  const ExpertMatrix& matrix = plan.experts.at("model.layers.3.mlp.experts.4.up_proj.weight");
  EXPECT_EQ(matrix.expert, 4);
  EXPECT_EQ(matrix.kind, "model.layers.3.mlp.experts.*.up_proj.weight");
}

TEST(ExpertsConfig, LayersMayHaveAnMlpInstead) {
  Json json = qwen3_moe();
  json["decoder_sparse_step"] = 2;
  EXPECT_THAT(has_experts(parse(json)), ElementsAre(false, true, false, true));
  json["mlp_only_layers"] = {3};
  const ModelConfig config = parse(json);
  EXPECT_THAT(has_experts(config), ElementsAre(false, true, false, false));
  EXPECT_EQ(config.layers[3].mlp.width, 96);
  json["mlp_only_layers"] = {4};
  expect_refused(json, "mlp_only_layers");
  json["mlp_only_layers"] = {-1};
  expect_refused(json, "mlp_only_layers");
  json["mlp_only_layers"] = 2;
  expect_refused(json, "mlp_only_layers");
}

TEST(ExpertsConfig, CountsThatLieAreRefused) {
  Json json = qwen3_moe();
  json["num_local_experts"] = 7;
  expect_refused(json, "num_local_experts");
  json["num_local_experts"] = 6;
  EXPECT_NO_THROW(parse(json));
  json["num_experts_per_tok"] = 7;
  expect_refused(json, "num_experts_per_tok");
  json["num_experts_per_tok"] = 0;
  expect_refused(json, "num_experts_per_tok");
  json = qwen3_moe();
  json["num_experts"] = 0;
  expect_refused(json, "num_experts");
  json["num_experts"] = 1 << 20;
  expect_refused(json, "num_experts");
  json.erase("num_experts");
  expect_refused(json, "num_experts");
  json = qwen3_moe();
  json.erase("moe_intermediate_size");
  expect_refused(json, "moe_intermediate_size");
}

TEST(ExpertsConfig, GroupsMustFitTheExperts) {
  Json json = glm4_moe();
  EXPECT_EQ(parse(json).layers[1].experts.routing.groups, 4);
  json["n_group"] = 3;
  expect_refused(json, "n_group");
  json = glm4_moe();
  json["topk_group"] = 5;
  expect_refused(json, "topk_group");
  json = glm4_moe();
  json["num_experts_per_tok"] = 5;
  expect_refused(json, "num_experts_per_tok");
}

TEST(ExpertsConfig, TheSharedExpertIsTheMlpOfTheLayer) {
  Json json = glm4_moe();
  json["n_shared_experts"] = 3;
  const ModelConfig config = parse(json);
  EXPECT_THAT(has_experts(config), ElementsAre(false, true, true, true));
  const LayerDesc& layer = config.layers[1];
  EXPECT_EQ(layer.mlp.width, 96);
  EXPECT_EQ(layer.experts.shared_gate, -1);
  EXPECT_EQ(layer.matrix(layer.mlp.up).input, layer.matrix(layer.experts.router).input);
  EXPECT_EQ(layer.matrix(layer.mlp.down).weight,
            "model.layers.1.mlp.shared_experts.down_proj.weight");
  json = of_family("qwen2_moe", "Qwen2MoeForCausalLM");
  json["num_experts"] = 4;
  json["num_experts_per_tok"] = 2;
  json["moe_intermediate_size"] = 32;
  expect_refused(json, "shared_expert_intermediate_size");
  json["shared_expert_intermediate_size"] = 40;
  const LayerDesc gated = parse(json).layers[0];
  EXPECT_EQ(gated.mlp.width, 40);
  EXPECT_TRUE(gated.matrix(gated.experts.shared_gate).plain);
}

TEST(ExpertsConfig, GptOssIsReadInMxfp4AndCodesNotKnownAreRefused) {
  Json json = of_family("gpt_oss", "GptOssForCausalLM");
  json["num_local_experts"] = 4;
  json["num_experts_per_tok"] = 2;
  json["quantization_config"] = {{"quant_method", "mxfp4"}};
  const LayerDesc layer = parse(json).layers[0];
  EXPECT_EQ(layer.vectors.at(LayerVector::sinks), "model.layers.0.self_attn.sinks");
  EXPECT_EQ(layer.attention.window, 128);
  EXPECT_FALSE(layer.matrix(layer.experts.down(1)).bias.empty());
  json["quantization_config"]["quant_method"] = "aqlm";
  expect_refused(json, "mxfp4");
}

TEST(ExpertsConfig, DenseModelsHaveNone) {
  const ModelPlan plan = make_plan(parse(llama()));
  EXPECT_THAT(plan.experts, IsEmpty());
  for (const Site& site : plan.sites)
    EXPECT_THAT(site.plain, IsEmpty());
}

}  // namespace
}  // namespace walsh
