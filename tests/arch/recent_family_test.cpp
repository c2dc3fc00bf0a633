// Tests how families of 2025 read config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "config_support.h"

namespace walsh {
namespace {

using testing::Each;
using testing::ElementsAre;
using namespace test;

TEST(Families, SeedOssHasBiasesOfQueriesKeysAndValues) {
  Json json = of_family("seed_oss", "SeedOssForCausalLM");
  json["residual_dropout"] = 0.1;
  const ModelConfig c = parse(json);
  const AttentionDesc& a = c.layers.front().attention;
  EXPECT_TRUE(has_bias(c, a.q) && has_bias(c, a.k) && has_bias(c, a.v));
  EXPECT_FALSE(has_bias(c, a.o) || has_bias(c, c.layers.front().mlp.down));
  EXPECT_EQ(a.head_dim, 128) << "the default of transformers";
  json["head_dim"] = nullptr;
  json["attention_out_bias"] = json["mlp_bias"] = true;
  json["attention_bias"] = false;
  const ModelConfig other = parse(json);
  EXPECT_EQ(other.layers.front().attention.head_dim, 16) << "hidden / heads";
  EXPECT_FALSE(has_bias(other, a.q));
  EXPECT_TRUE(has_bias(other, a.o) && has_bias(other, c.layers.front().mlp.down));
  json["attention_sinks"] = true;
  expect_refused(json, "attention_sinks");
}

TEST(Families, Exaone4GoesWithoutRopeWhereThereIsNoWindow) {
  Json json = of_family("exaone4", "Exaone4ForCausalLM");
  const ModelConfig c = parse(json);
  EXPECT_THAT(windows(c), ElementsAre(4096, 4096, 4096, 0)) << "the defaults of transformers";
  EXPECT_THAT(ropes(c), ElementsAre(0, 0, 0, -1));
  const LayerDesc& layer = c.layers.front();
  EXPECT_FALSE(layer.activations[0].norm.present()) << "norms are behind the blocks";
  EXPECT_EQ(layer.after_attention.weight, "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(layer.attention.q_norm.width, 16);
  json["sliding_window_pattern"] = 2;
  EXPECT_THAT(windows(parse(json)), ElementsAre(4096, 0, 4096, 0));
  json["sliding_window_pattern"] = "LLLG";
  expect_refused(json, "sliding_window_pattern");
  json["layer_types"] = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(ropes(parse(json)), ElementsAre(-1, 0, -1, -1));
  json["sliding_window"] = nullptr;
  expect_refused(json, "layer_types");
  json["layer_types"][1] = "full_attention";
  EXPECT_THAT(ropes(parse(json)), Each(0)) << "a model without windows";
  json.erase("layer_types");
  expect_refused(json, "layer_types");
}

TEST(Families, Ernie45TurnsNeighbours) {
  Json json = of_family("ernie4_5", "Ernie4_5ForCausalLM");
  json.erase("tie_word_embeddings");
  json.erase("rope_parameters");
  json["use_bias"] = true;
  const ModelConfig c = parse(json);
  EXPECT_TRUE(c.tied_head);
  EXPECT_EQ(c.ropes[0].theta, 500000);
  EXPECT_EQ(c.layers[0].attention.head_dim, 128) << "the default of transformers";
  EXPECT_EQ(c.parts[0].turned, 128);
  EXPECT_TRUE(has_bias(c, c.layers[0].attention.o) && has_bias(c, c.layers[0].mlp.down));
}

TEST(Families, Ernie45HasExpertsInARangeOfLayers) {
  Json json = of_family("ernie4_5_moe", "Ernie4_5_MoeForCausalLM");
  json["moe_num_experts"] = 8;
  json["moe_k"] = 3;
  json["moe_intermediate_size"] = 32;
  const auto with_experts = [](const ModelConfig& c) {
    std::vector<bool> result;
    for (const LayerDesc& layer : c.layers)
      result.push_back(layer.experts.present());
    return result;
  };
  const ModelConfig c = parse(json);
  EXPECT_THAT(with_experts(c), ElementsAre(false, true, true, true)) << "the defaults";
  const ExpertsDesc& e = c.layers[1].experts;
  EXPECT_EQ(e.count, 8);
  EXPECT_EQ(e.chosen, 3);
  EXPECT_FALSE(e.routing.sigmoid);
  EXPECT_TRUE(e.routing.normalized);
  EXPECT_EQ(c.layers[1].vectors.at(LayerVector::choice_bias),
            "model.layers.1.mlp.moe_statics.e_score_correction_bias");
  json["moe_layer_interval"] = 2;
  EXPECT_THAT(with_experts(parse(json)), ElementsAre(false, true, false, true));
  json["moe_layer_end_index"] = 2;
  EXPECT_THAT(with_experts(parse(json)), ElementsAre(false, true, false, false));
  json["moe_k"] = 9;
  expect_refused(json, "moe_k");
  json["moe_k"] = 3;
  json["moe_gate"] = "hash";
  expect_refused(json, "moe_gate");
}

Json minimax() {
  Json json = of_family("minimax_m2", "MiniMaxM2ForCausalLM");
  json["num_local_experts"] = 8;
  json["num_experts_per_tok"] = 2;
  json["head_dim"] = 16;
  return json;
}

TEST(Families, MiniMaxM2RotatesAPartOfEveryHead) {
  Json json = minimax();
  EXPECT_EQ(parse(json).ropes[0].share, 1);
  json["rotary_dim"] = 8;
  EXPECT_EQ(parse(json).ropes[0].share, 0.5);
  json["rope_parameters"]["partial_rotary_factor"] = 0.25;
  expect_refused(json, "rotary_dim");
  json["rotary_dim"] = 4;
  EXPECT_EQ(parse(json).ropes[0].share, 0.25);
}

TEST(Families, MiniMaxM2HasTheExpertsThatPublishedFilesDescribe) {
  Json json = minimax();
  const ModelConfig c = parse(json);
  const LayerDesc& layer = c.layers.front();
  EXPECT_TRUE(layer.experts.routing.sigmoid && layer.experts.routing.normalized);
  EXPECT_EQ(layer.vectors.at(LayerVector::choice_bias),
            "model.layers.0.block_sparse_moe.e_score_correction_bias");
  EXPECT_EQ(layer.matrix(layer.experts.up(1)).weight,
            "model.layers.0.block_sparse_moe.experts.1.w3.weight");
  EXPECT_EQ(layer.attention.q_norm.width, 64) << "over all heads";
  json["attn_type_list"] = {1, 1, 1, 1};
  EXPECT_NO_THROW(parse(json));
  for (const auto& [key, value] : {std::pair<const char*, Json>("attn_type_list", {1, 0, 1, 1}),
                                   {"scoring_func", "softmax"},
                                   {"use_routing_bias", false},
                                   {"use_qk_norm", false},
                                   {"shared_intermediate_size", 64}}) {
    Json other = minimax();
    other[key] = value;
    expect_refused(other, key);
  }
}

TEST(Families, ArceeHasNoGates) {
  Json json = of_family("arcee", "ArceeForCausalLM");
  json["hidden_act"] = "relu2";
  json["mlp_bias"] = true;
  const ModelConfig c = parse(json);
  const LayerDesc& layer = c.layers.front();
  EXPECT_EQ(layer.mlp.gate, -1);
  EXPECT_EQ(layer.mlp.function, GateFunction::relu);
  EXPECT_TRUE(has_bias(c, layer.mlp.up) && has_bias(c, layer.mlp.down));
  EXPECT_FALSE(has_bias(c, layer.attention.q));
  EXPECT_EQ(layer.input_of(layer.matrix(layer.mlp.down)).feeder.matrix, "")
      << "rows of up that are scaled would scale what down reads twice";
  json["hidden_act"] = "silu";
  expect_refused(json, "hidden_act");
}

Json hunyuan() {
  Json json = of_family("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM");
  json["head_dim"] = 16;
  return json;
}

TEST(Families, HunYuanHasNormsBehindTheRotation) {
  Json json = hunyuan();
  const AttentionDesc a = parse(json).layers.front().attention;
  EXPECT_EQ(a.q_norm.weight, "model.layers.0.self_attn.query_layernorm.weight");
  EXPECT_TRUE(a.norms_turned);
  json["use_cla"] = true;
  expect_refused(json, "use_cla");
  json = hunyuan();
  json["norm_type"] = "layer";
  expect_refused(json, "norm_type");
  json = hunyuan();
  json.erase("head_dim");
  expect_refused(json, "head_dim");
}

TEST(Families, HunYuanStretchesTheBaseOfItsRope) {
  Json json = hunyuan();
  json["rope_parameters"] = {
      {"rope_type", "dynamic"}, {"rope_theta", 10000.0}, {"alpha", 1000.0}, {"factor", 1.0}};
  const RopeConfig rope = parse(json).ropes.front();
  EXPECT_EQ(rope.kind, RopeKind::standard);
  EXPECT_NEAR(rope.theta, 10000 * std::pow(1000, 16.0 / 14), 1);
  json["model_type"] = "llama";
  json["architectures"] = {"LlamaForCausalLM"};
  expect_refused(json, "alpha");
}

Json cohere2() {
  Json json = of_family("cohere2", "Cohere2ForCausalLM");
  json.erase("rms_norm_eps");
  json["layer_norm_eps"] = 1e-5;
  return json;
}

TEST(Families, Cohere2HasCenteredNormsAndParallelBlocks) {
  Json json = cohere2();
  const ModelConfig c = parse(json);
  EXPECT_THAT(windows(c), ElementsAre(4096, 4096, 4096, 0)) << "the defaults of transformers";
  EXPECT_THAT(ropes(c), ElementsAre(0, 0, 0, -1));
  EXPECT_EQ(c.logit_scale, 0.0625F);
  const LayerDesc& layer = c.layers.front();
  EXPECT_TRUE(layer.parallel);
  EXPECT_EQ(layer.activations.size(), 3u) << "attention and MLP read one";
  EXPECT_EQ(layer.matrix(layer.mlp.up).input, layer.matrix(layer.attention.q).input);
  EXPECT_TRUE(layer.activations[0].norm.centered && c.head_input.norm.centered);
  json["sliding_window_pattern"] = 2;
  EXPECT_THAT(windows(parse(json)), ElementsAre(4096, 0, 4096, 0));
  for (const auto& [key, value] : {std::pair<const char*, Json>("use_parallel_block", false),
                                   {"position_embedding_type", "rope"},
                                   {"head_dim", 32},
                                   {"rms_norm_eps", 1e-5},
                                   {"use_qk_norm", true}}) {
    Json other = cohere2();
    other[key] = value;
    expect_refused(other, key);
  }
}

}  // namespace
}  // namespace walsh
