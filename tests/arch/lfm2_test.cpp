// Tests how LFM2's config.json is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config_support.h"

namespace walsh {
namespace {

using testing::ElementsAre;
using namespace test;

Json lfm2(const char* type = "lfm2", const char* architecture = "Lfm2ForCausalLM") {
  Json json = of_family(type, architecture);
  for (const char* key : {"rms_norm_eps", "hidden_act", "rope_parameters", "tie_word_embeddings"})
    json.erase(key);
  json["layer_types"] = {"conv", "full_attention", "conv", "full_attention"};
  return json;
}

Json lfm2_moe() {
  Json json = lfm2("lfm2_moe", "Lfm2MoeForCausalLM");
  json["num_experts"] = 8;
  json["num_experts_per_tok"] = 3;
  json["moe_intermediate_size"] = 32;
  return json;
}

std::vector<bool> convolutions(const ModelConfig& c) {
  std::vector<bool> result;
  for (const LayerDesc& layer : c.layers)
    result.push_back(layer.short_convolution.present());
  return result;
}

TEST(Lfm2, LayersAreConvolutionsBetweenGatesOrAttention) {
  Json json = lfm2();
  const ModelConfig c = parse(json);
  EXPECT_THAT(convolutions(c), ElementsAre(true, false, true, false));
  EXPECT_TRUE(c.tied_head && is_recurrent(c)) << "the default of transformers";
  EXPECT_EQ(c.ropes[0].theta, 1e6);
  const LayerDesc& layer = c.layers.front();
  const ShortConvolutionDesc& s = layer.short_convolution;
  EXPECT_EQ(s.taps, 3);
  EXPECT_EQ(s.channels, 64);
  EXPECT_EQ(layer.vectors.at(LayerVector::taps), "model.layers.0.conv.conv.weight");
  EXPECT_FALSE(layer.attention.present() || has_bias(c, s.inner) ||
               layer.vectors.contains(LayerVector::taps_bias));
  EXPECT_EQ(find_vector(layer_vectors(c.layers[1]), c.layers[1].vectors.at(LayerVector::taps)), -1)
      << "a layer with attention has no convolution";
  EXPECT_EQ(layer.input_of(layer.matrix(s.o)).feeder.matrix, layer.matrix(s.after).weight)
      << "the gate behind multiplies what o reads";
  ASSERT_GE(c.parts.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(c.parts[static_cast<size_t>(i)].source, "model.layers.0.conv.in_proj.weight");
    EXPECT_EQ(c.parts[static_cast<size_t>(i)].first_row, 64 * i);
  }
  EXPECT_EQ(c.parts[0].name, layer.matrix(s.before).weight);
  EXPECT_EQ(c.parts[2].name, layer.matrix(s.inner).weight);
  EXPECT_EQ(c.layers[1].attention.k_norm.weight, "model.layers.1.self_attn.k_layernorm.weight");
  json["conv_bias"] = true;
  json["conv_L_cache"] = 4;
  const ModelConfig other = parse(json);
  EXPECT_TRUE(has_bias(other, s.o) && has_bias(other, s.before));
  EXPECT_EQ(other.layers[2].vectors.at(LayerVector::taps_bias), "model.layers.2.conv.conv.bias");
  EXPECT_EQ(other.layers[2].short_convolution.taps, 4);
  json["conv_L_cache"] = 1;
  expect_refused(json, "conv_L_cache");
}

TEST(Lfm2, PublishedFilesListTheLayersWithAttention) {
  Json json = lfm2();
  json["full_attn_idxs"] = {0};
  EXPECT_THAT(convolutions(parse(json)), ElementsAre(true, false, true, false)) << "has no effect";
  json.erase("layer_types");
  EXPECT_THAT(convolutions(parse(json)), ElementsAre(false, true, true, true));
  json["full_attn_idxs"] = {4};
  expect_refused(json, "full_attn_idxs");
  json.erase("full_attn_idxs");
  EXPECT_THAT(convolutions(parse(json)), ElementsAre(false, false, false, false));
  json["layer_types"] = {"conv", "linear_attention", "conv", "conv"};
  expect_refused(json, "layer_types");
}

TEST(Lfm2, TheWidthOfTheMlpFollowsFromTheStatedOne) {
  const auto width = [](const Json& json) { return parse(json).layers[0].mlp.width; };
  Json json = lfm2();
  EXPECT_EQ(width(json), 256) << "96 / 3 * 2, and the next multiple of 256";
  json["block_multiple_of"] = 8;
  EXPECT_EQ(width(json), 64);
  json["block_ff_dim"] = 60;
  json["block_ffn_dim_multiplier"] = 1.25;
  EXPECT_EQ(width(json), 56) << "40, then 50, then the next multiple of 8";
  json["block_ffn_dim_multiplier"] = nullptr;
  EXPECT_EQ(width(json), 40);
  json["block_auto_adjust_ff_dim"] = false;
  EXPECT_EQ(width(json), 60);
}

TEST(Lfm2, OtherValuesOfPublishedKeysAreRefused) {
  for (const auto& [key, value] : {std::pair<const char*, Json>("block_use_swiglu", false),
                                   {"use_pos_enc", false},
                                   {"conv_dim", 32},
                                   {"num_heads", 2},
                                   {"conv_mystery", 1}}) {
    Json json = lfm2();
    json[key] = value;
    expect_refused(json, key);
  }
  Json json = lfm2();
  json["tie_embedding"] = false;
  EXPECT_FALSE(parse(json).tied_head);
}

TEST(Lfm2, ExpertsHaveSigmoidsAndABiasForTheChoice) {
  Json json = lfm2_moe();
  const ModelConfig c = parse(json);
  EXPECT_FALSE(c.layers[1].experts.present()) << "the first two layers, by default";
  EXPECT_EQ(c.layers[1].mlp.width, 96) << "as stated";
  const ExpertsDesc& e = c.layers[2].experts;
  EXPECT_EQ(e.count, 8);
  EXPECT_TRUE(e.routing.sigmoid && e.routing.normalized);
  EXPECT_EQ(c.layers[2].vectors.at(LayerVector::choice_bias),
            "model.layers.2.feed_forward.expert_bias");
  EXPECT_EQ(c.layers[2].matrix(e.up(1)).weight, "model.layers.2.feed_forward.experts.1.w3.weight");
  json["use_expert_bias"] = false;
  json["num_dense_layers"] = 0;
  json["routed_scaling_factor"] = 2.5;
  const ModelConfig other = parse(json);
  EXPECT_TRUE(other.layers[0].experts.present());
  EXPECT_FALSE(other.layers[0].vectors.contains(LayerVector::choice_bias));
  EXPECT_EQ(other.layers[0].experts.routing.scale, 2.5F);
  json.erase("layer_types");
  expect_refused(json, "layer_types");
}

}  // namespace
}  // namespace walsh
