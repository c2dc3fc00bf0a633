// Tests how DeepSeek-V2 and V3 read config.json, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arch/plan.h"
#include "config_support.h"

namespace walsh {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;
using namespace test;

Json deepseek(const char* type, const char* architecture) {
  Json json = of_family(type, architecture);
  json["num_key_value_heads"] = 4;
  json["kv_lora_rank"] = 32;
  json["q_lora_rank"] = 40;
  json["qk_nope_head_dim"] = 16;
  json["qk_rope_head_dim"] = 8;
  json["v_head_dim"] = 20;
  json["n_routed_experts"] = 6;
  json["n_shared_experts"] = 2;
  json["num_experts_per_tok"] = 2;
  json["moe_intermediate_size"] = 32;
  json["first_k_dense_replace"] = 1;
  json["n_group"] = 3;
  json["topk_group"] = 2;
  return json;
}

Json v2() {
  return deepseek("deepseek_v2", "DeepseekV2ForCausalLM");
}

Json v3() {
  return deepseek("deepseek_v3", "DeepseekV3ForCausalLM");
}

const TensorPart& part_of(const ModelConfig& config, const std::string& name) {
  return *std::find_if(config.parts.begin(), config.parts.end(),
                       [&](const TensorPart& part) { return part.name == name; });
}

TEST(LatentConfig, KeysAndValuesReadTheLatentAndQueriesTheirOwn) {
  const LayerDesc layer = parse(v2()).layers[0];
  const AttentionDesc& a = layer.attention;
  EXPECT_EQ(a.head_dim, 24);
  EXPECT_EQ(a.kv_heads, 4);
  EXPECT_EQ(a.value_width(), 80);
  EXPECT_FLOAT_EQ(a.scale, 1 / std::sqrt(24.0F));
  const LatentDesc& l = a.latent;
  const MatrixDesc &k = layer.matrix(a.k), &v = layer.matrix(a.v), &q = layer.matrix(a.q);
  EXPECT_EQ(layer.input_of(k).width, 32);
  EXPECT_EQ(layer.input_of(k).norm.weight, "model.layers.0.self_attn.kv_a_layernorm.weight");
  EXPECT_FLOAT_EQ(layer.input_of(k).norm.eps, 1e-6F) << "whatever rms_norm_eps says";
  EXPECT_EQ(v.input, k.input);
  EXPECT_EQ(k.rows, 64);
  EXPECT_EQ(v.rows, 80);
  EXPECT_EQ(layer.input_of(q).width, 40);
  EXPECT_EQ(q.rows, 96);
  EXPECT_EQ(layer.matrix(l.query_down).input, layer.matrix(l.down).input);
  EXPECT_EQ(layer.matrix(l.shared_key).rows, 8);
  EXPECT_EQ(layer.matrix(a.o).cols, 80);
  EXPECT_EQ(layer.input_of(layer.matrix(a.o)).feeder.matrix, v.weight);
}

// transformers sets what a file says: None is false, and no number to compute with.
TEST(LatentConfig, NullIsNotAbsent) {
  Json json = v3();
  EXPECT_TRUE(parse(json).layers[1].experts.routing.normalized);
  const auto turned = [&] {
    const ModelConfig config = parse(json);
    return std::any_of(config.parts.begin(), config.parts.end(),
                       [](const TensorPart& part) { return part.turned != 0; });
  };
  EXPECT_TRUE(turned());
  json["norm_topk_prob"] = nullptr;
  EXPECT_FALSE(parse(json).layers[1].experts.routing.normalized);
  json["rope_interleave"] = nullptr;
  EXPECT_FALSE(turned());
  for (const char* key : {"routed_scaling_factor", "kv_lora_rank", "first_k_dense_replace"}) {
    json = v3();
    json[key] = nullptr;
    expect_refused(json, key);
  }
}

TEST(LatentConfig, NullGroupsAreReadWhereThereAreNone) {
  Json json = v2();
  json["n_group"] = json["topk_group"] = nullptr;
  json["topk_method"] = "greedy";
  EXPECT_EQ(parse(json).layers[1].experts.routing.groups, 1);
  json["topk_method"] = "group_limited_greedy";
  expect_refused(json, "n_group");
  json["topk_method"] = nullptr;
  expect_refused(json, "topk_method");
}

TEST(LatentConfig, QueriesMayReadTheInput) {
  Json json = v2();
  json["q_lora_rank"] = nullptr;
  const LayerDesc layer = parse(json).layers[0];
  EXPECT_EQ(layer.attention.latent.query_down, -1);
  EXPECT_EQ(layer.matrix(layer.attention.q).weight, "model.layers.0.self_attn.q_proj.weight");
  json.erase("q_lora_rank");
  EXPECT_EQ(parse(json).layers[0].attention.latent.query_rank, 1536) << "transformers' default";
}

TEST(LatentConfig, RotatedRowsComeFirstTheFirstOfAllPairsBeforeTheSecond) {
  const ModelConfig config = parse(v2());
  const TensorPart q = part_of(config, "model.layers.0.self_attn.q_b_proj.weight");
  EXPECT_EQ(q.source, q.name);
  ASSERT_EQ(q.groups.size(), 12U);
  EXPECT_EQ(q.groups[3].first, 24 + 16);
  EXPECT_EQ(q.groups[3].step, 2);
  EXPECT_EQ(q.groups[3].count, 4);
  EXPECT_EQ(q.groups[4].first, 24 + 17);
  EXPECT_EQ(q.groups[5].first, 24);
  EXPECT_EQ(q.groups[5].rows, 16);
  const TensorPart key = part_of(config, "model.layers.0.self_attn.k_rope_proj.weight");
  EXPECT_EQ(key.source, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight");
  EXPECT_EQ(key.first_row, 32);
  EXPECT_EQ(key.turned, 8);
  Json json = v3();
  json["rope_interleave"] = false;
  const ModelConfig straight = parse(json);
  EXPECT_EQ(part_of(straight, "model.layers.0.self_attn.q_b_proj.weight").groups.size(), 8U);
  EXPECT_EQ(part_of(straight, "model.layers.0.self_attn.k_rope_proj.weight").turned, 0);
}

TEST(LatentConfig, YarnRaisesTheLogitsByTheMagnitudeOfAllValues) {
  Json json = v3();
  json["rope_parameters"] = {{"rope_type", "yarn"},   {"rope_theta", 10000.0},
                             {"factor", 40.0},        {"original_max_position_embeddings", 64},
                             {"mscale_all_dim", 0.7}, {"mscale", 0.7}};
  const double magnitude = 0.1 * 0.7 * std::log(40.0) + 1;
  EXPECT_NEAR(parse(json).layers[0].attention.scale, magnitude * magnitude / std::sqrt(24.0), 1e-6);
}

TEST(LatentConfig, RoutingOfBothVersions) {
  Json json = v2();
  json["topk_method"] = "group_limited_greedy";
  json["routed_scaling_factor"] = 1.5;
  RoutingDesc routing = parse(json).layers[1].experts.routing;
  EXPECT_FALSE(routing.sigmoid || routing.normalized);
  EXPECT_EQ(routing.groups, 3);
  EXPECT_EQ(routing.groups_chosen, 2);
  EXPECT_EQ(routing.group_best, 1);
  EXPECT_FLOAT_EQ(routing.scale, 1.5F);
  json["topk_method"] = "greedy";
  EXPECT_EQ(parse(json).layers[1].experts.routing.groups, 1);
  routing = parse(v3()).layers[1].experts.routing;
  EXPECT_TRUE(routing.sigmoid && routing.normalized);
  EXPECT_EQ(routing.group_best, 2);
  EXPECT_FLOAT_EQ(routing.scale, 2.5F) << "transformers' default";
  const ModelConfig config = parse(v3());
  EXPECT_EQ(config.layers[1].vectors.at(LayerVector::choice_bias),
            "model.layers.1.mlp.gate.e_score_correction_bias");
  EXPECT_FALSE(config.layers[0].experts.present());
  EXPECT_EQ(config.layers[1].mlp.width, 64) << "of the shared experts";
}

TEST(LatentConfig, TheFirstLayerThatPredictsFurtherTokensIsRead) {
  Json json = v3();
  EXPECT_TRUE(make_plan(parse(json)).left_out.empty());
  EXPECT_FALSE(parse(json).ahead.present());
  json["num_nextn_predict_layers"] = 2;
  const ModelConfig config = parse(json);
  ASSERT_TRUE(config.ahead.present());
  const LayerDesc& layer = config.ahead.layer.front();
  EXPECT_EQ(layer.matrix(layer.join.project).weight, "model.layers.4.eh_proj.weight");
  EXPECT_EQ(layer.matrix(layer.join.project).cols, 2 * config.hidden);
  EXPECT_EQ(layer.matrix(layer.attention.o).weight, "model.layers.4.self_attn.o_proj.weight");
  EXPECT_TRUE(layer.experts.present());
  EXPECT_TRUE(config.ahead.joins_normed && !config.ahead.goes_on_normed);
  EXPECT_EQ(ahead_config(config).head_input.norm.weight, "model.layers.4.shared_head.norm.weight");
  const ModelPlan plan = make_plan(config);
  EXPECT_EQ(plan.ahead_join, "model.layers.4.eh_proj.weight");
  EXPECT_THAT(plan.left_out, ElementsAre("model.layers.4.embed_tokens.",
                                         "model.layers.4.shared_head.head.", "model.layers.5."));
}

TEST(LatentConfig, WhatIsNotKnownIsRefused) {
  const auto refused = [](Json json, const char* key, const Json& value) {
    json[key] = value;
    expect_refused(json, key);
  };
  refused(v2(), "topk_method", "noaux_tc");
  refused(v2(), "scoring_func", "sigmoid");
  refused(v2(), "norm_topk_prob", true);
  refused(v2(), "moe_layer_freq", 2);
  refused(v2(), "v_head_dim", 25);
  refused(v2(), "qk_rope_head_dim", 7);
  refused(v2(), "num_key_value_heads", 2);
  refused(v2(), "head_dim", 24);
  refused(v2(), "qk_head_dim", 32);
  refused(v2(), "kv_lora_rank", 0);
  refused(v3(), "scoring_func", "softmax");
  refused(v3(), "topk_method", "greedy");
  refused(v3(), "n_group", 4);
  refused(v3(), "index_topk", 2048);
}

// These are the keys that the published models have, and those that transformers 5 writes.
TEST(LatentConfig, PublishedFilesAreRead) {
  Json json = v3();
  json["auto_map"] = {{"AutoConfig", "configuration_deepseek.DeepseekV3Config"}};
  json["ep_size"] = 1;
  json["moe_layer_freq"] = 1;
  json["norm_topk_prob"] = true;
  json["num_nextn_predict_layers"] = 1;
  json["quantization_config"] = {{"activation_scheme", "dynamic"},
                                 {"fmt", "e4m3"},
                                 {"quant_method", "fp8"},
                                 {"weight_block_size", {128, 128}}};
  json.erase("rope_parameters");
  json["rope_theta"] = 10000;
  json["rope_scaling"] = {{"type", "yarn"},
                          {"beta_fast", 32},
                          {"beta_slow", 1},
                          {"factor", 40},
                          {"mscale", 1.0},
                          {"mscale_all_dim", 1.0},
                          {"original_max_position_embeddings", 64}};
  json["scoring_func"] = "sigmoid";
  json["topk_method"] = "noaux_tc";
  EXPECT_NO_THROW(parse(json));
  json["head_dim"] = 8;
  json["qk_head_dim"] = 24;
  EXPECT_NO_THROW(parse(json));
  json = v2();
  json["aux_loss_alpha"] = 0.001;
  json["seq_aux"] = true;
  json["scoring_func"] = "softmax";
  json["topk_method"] = "greedy";
  json["n_group"] = json["topk_group"] = 1;
  EXPECT_NO_THROW(parse(json));
}

TEST(LatentConfig, NoRotationIsFoldedBehindTheLatent) {
  const ModelPlan plan = make_plan(parse(v2()));
  std::vector<std::string> folded;
  for (const FoldedTensor& tensor : plan.residual.tensors)
    folded.push_back(tensor.name);
  EXPECT_THAT(folded, Contains("model.layers.0.self_attn.kv_a_proj.weight"));
  EXPECT_THAT(folded, Contains("model.layers.0.self_attn.o_proj.weight"));
  EXPECT_THAT(folded, Not(Contains("model.layers.0.self_attn.v_b_proj.weight")));
}

}  // namespace
}  // namespace walsh
