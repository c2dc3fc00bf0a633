// Tests how config.json of families with Mamba-2 mixers is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "config_support.h"

namespace walsh {
namespace {

using testing::ElementsAre;
using namespace test;

Json granite() {
  Json json = of_family("granitemoehybrid", "GraniteMoeHybridForCausalLM");
  json["layer_types"] = {"mamba", "attention", "mamba", "linear_attention"};
  json["num_local_experts"] = 4;
  json["mamba_n_heads"] = 8;
  json["mamba_d_state"] = 32;
  return json;
}

std::vector<bool> mixers(const ModelConfig& c) {
  std::vector<bool> result;
  for (const LayerDesc& layer : c.layers)
    result.push_back(layer.delta_net.present());
  return result;
}

TEST(GraniteHybrid, LayersAreMamba2OrAttentionWithoutRope) {
  Json json = granite();
  json["residual_multiplier"] = 0.5;
  const ModelConfig c = parse(json);
  EXPECT_THAT(mixers(c), ElementsAre(true, false, true, true));
  EXPECT_TRUE(is_recurrent(c));
  EXPECT_EQ(c.layers[1].attention.rope, -1);
  const LayerDesc& layer = c.layers.front();
  const DeltaNetDesc& d = layer.delta_net;
  EXPECT_TRUE(d.additive);
  EXPECT_EQ(d.value_heads, 8);
  EXPECT_EQ(d.value_dim, 16) << "2 * 64 / 8";
  EXPECT_EQ(d.key_heads, 1);
  EXPECT_EQ(d.key_dim, 32);
  EXPECT_EQ(d.taps, 4);
  EXPECT_EQ(layer.vectors.at(LayerVector::taps_bias), "model.layers.0.mamba.conv1d.bias");
  EXPECT_EQ(layer.vectors.at(LayerVector::skip), "model.layers.0.mamba.D");
  EXPECT_EQ(d.norm.width, 128);
  EXPECT_EQ(d.norm.eps, 1e-5F) << "what it norms is no multiple of the stream";
  EXPECT_EQ(layer.input_of(layer.matrix(d.z)).norm.eps, 4e-5F);
  EXPECT_EQ(d.least_strength, 0);
  EXPECT_TRUE(std::isinf(d.most_strength));
  EXPECT_FALSE(has_bias(c, d.qkv) || has_bias(c, d.o));
  EXPECT_FALSE(layer.matrix(d.b).plain) << "it is rows of in_proj";
  ASSERT_GE(c.parts.size(), 3U);
  const int64_t first[] = {0, 128, 128 + 128 + 2 * 32};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(c.parts[i].source, "model.layers.0.mamba.in_proj.weight");
    EXPECT_EQ(c.parts[i].first_row, first[i]);
  }
  EXPECT_EQ(c.parts[0].name, layer.matrix(d.z).weight);
  EXPECT_EQ(c.parts[1].name, layer.matrix(d.qkv).weight);
}

TEST(GraniteHybrid, SharedMlpIsBesideExpertsOrInTheirPlace) {
  Json json = granite();
  json["shared_intermediate_size"] = 48;
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.layers[0].experts.count, 4);
  EXPECT_EQ(c.layers[0].experts.width, 96);
  EXPECT_EQ(c.layers[0].mlp.width, 48);
  EXPECT_EQ(c.layers[0].matrix(c.layers[0].mlp.down).weight,
            "model.layers.0.shared_mlp.output_linear.weight");
  json["num_local_experts"] = 0;
  const ModelConfig dense = parse(json);
  EXPECT_FALSE(dense.layers[0].experts.present());
  EXPECT_EQ(dense.layers[0].mlp.width, 48);
}

TEST(GraniteHybrid, OptionsOfMixersAreRead) {
  Json json = granite();
  json["mamba_n_groups"] = 2;
  json["mamba_d_head"] = 16;
  json["mamba_conv_bias"] = false;
  json["mamba_proj_bias"] = true;
  json["time_step_limit"] = {0.01, 0.5};
  json["position_embedding_type"] = "rope";
  const ModelConfig c = parse(json);
  const DeltaNetDesc& d = c.layers[0].delta_net;
  EXPECT_EQ(d.key_heads, 2);
  EXPECT_EQ(d.norm.width, 64) << "a norm for each group";
  EXPECT_TRUE(!c.layers[0].vectors.contains(LayerVector::taps_bias) && has_bias(c, d.b) &&
              has_bias(c, d.o));
  EXPECT_EQ(d.least_strength, 0.01F);
  EXPECT_EQ(d.most_strength, 0.5F);
  EXPECT_EQ(c.layers[1].attention.rope, 0);
  json["time_step_limit"] = {0.01, {{"__float__", "Infinity"}}};
  EXPECT_TRUE(std::isinf(parse(json).layers[0].delta_net.most_strength));
}

TEST(GraniteHybrid, RefusesWhatItDoesNotUnderstand) {
  for (const auto& [key, value] : {std::pair<const char*, Json>("mamba_d_state", 24),
                                   {"mamba_n_groups", 3},
                                   {"mamba_d_conv", 1},
                                   {"time_step_limit", {1, 0}},
                                   {"time_step_limit", "none"},
                                   {"layer_types", {"mamba", "attention", "mamba"}},
                                   {"layer_types", {"mamba", "conv", "mamba", "mamba"}},
                                   {"position_embedding_type", "alibi"},
                                   {"normalization_function", "layernorm"},
                                   {"mlp_bias", true},
                                   {"mamba_mystery", 1}}) {
    Json json = granite();
    json[key] = value;
    expect_refused(json, key);
  }
  Json json = granite();
  json["mamba_n_heads"] = 7;
  expect_refused(json, "mamba_d_head");
  json["mamba_n_heads"] = 8;
  json["mamba_d_head"] = 32;
  expect_refused(json, "mamba_expand");
}

Json nemotron() {
  Json json = of_family("nemotron_h", "NemotronHForCausalLM");
  for (const char* key : {"rms_norm_eps", "hidden_act", "rope_parameters"})
    json.erase(key);
  json.erase("num_hidden_layers");  // The list of layers tells it.
  json["layer_norm_epsilon"] = 1e-5;
  json["head_dim"] = 16;
  json["layers_block_type"] = {"mamba", "mlp", "attention", "moe"};
  json["mamba_num_heads"] = 8;
  json["mamba_head_dim"] = 16;
  json["n_groups"] = 2;
  json["ssm_state_size"] = 32;
  json["n_routed_experts"] = 8;
  json["num_experts_per_tok"] = 2;
  json["moe_intermediate_size"] = 32;
  json["moe_shared_expert_intermediate_size"] = 48;
  return json;
}

TEST(NemotronH, LayersHaveOneBlock) {
  Json json = nemotron();
  const ModelConfig c = parse(json);
  EXPECT_THAT(mixers(c), ElementsAre(true, false, false, false));
  EXPECT_EQ(c.layers[0].mlp.width, 0);
  EXPECT_EQ(c.layers[0].delta_net.norm.width, 64);
  EXPECT_EQ(c.layers[0].delta_net.least_strength, 1e-3F) << "the default of transformers";
  EXPECT_FALSE(c.layers[1].attention.present());
  EXPECT_EQ(c.layers[1].mlp.width, 96);
  EXPECT_EQ(c.layers[1].mlp.gate, -1);
  EXPECT_EQ(c.layers[1].mlp.function, GateFunction::relu);
  EXPECT_EQ(c.layers[1].activations.front().norm.weight, "model.layers.1.norm.weight");
  EXPECT_EQ(c.layers[2].attention.rope, -1);
  EXPECT_EQ(c.layers[2].mlp.width, 0);
  const ExpertsDesc& e = c.layers[3].experts;
  EXPECT_FALSE(e.gated || c.layers[3].attention.present());
  EXPECT_EQ(e.gate(1), e.up(1));
  EXPECT_EQ(e.down(1), e.up(2) - 1);
  EXPECT_EQ(c.layers[3].matrix(e.up(1)).weight, "model.layers.3.mixer.experts.1.up_proj.weight");
  EXPECT_EQ(c.layers[3].vectors.at(LayerVector::choice_bias),
            "model.layers.3.mixer.gate.e_score_correction_bias");
  EXPECT_TRUE(e.routing.sigmoid && e.routing.normalized);
  EXPECT_EQ(c.layers[3].mlp.width, 48);
  json.erase("layers_block_type");
  json["hybrid_override_pattern"] = "M-*E";
  EXPECT_THAT(mixers(parse(json)), ElementsAre(true, false, false, false));
}

TEST(NemotronH, RefusesWhatItDoesNotUnderstand) {
  for (const auto& [key, value] :
       {std::pair<const char*, Json>("layers_block_type", {"mamba", "mlp", "attention", "window"}),
        {"moe_latent_size", 32},
        {"mlp_hidden_act", "silu"},
        {"mamba_hidden_act", "relu"},
        {"n_groups", 3},
        {"ssm_state_size", 20},
        {"mamba_head_dim", 512},
        {"mamba_mystery", 1}}) {
    Json json = nemotron();
    json[key] = value;
    expect_refused(json, key);
  }
  Json json = nemotron();
  json["num_hidden_layers"] = 3;
  expect_refused(json, "layers_block_type");
}

}  // namespace
}  // namespace walsh
