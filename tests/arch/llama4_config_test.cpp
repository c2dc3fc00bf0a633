// Tests how Llama 4 reads config.json, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "config_support.h"

namespace walsh {
namespace {

using testing::ElementsAre;
using namespace test;

Json llama4() {
  Json json = of_family("llama4_text", "Llama4ForCausalLM");
  json["num_local_experts"] = 3;
  json["num_experts_per_tok"] = 1;
  json["intermediate_size_mlp"] = 80;
  json["attention_chunk_size"] = 32;
  return json;
}

std::vector<int64_t> chunks(const ModelConfig& config) {
  std::vector<int64_t> list;
  for (const LayerDesc& layer : config.layers)
    list.push_back(layer.attention.chunk);
  return list;
}

TEST(Llama4Config, LayersWithRopeSeeChunksTheOthersEverything) {
  Json json = llama4();
  const ModelConfig config = parse(json);
  EXPECT_THAT(ropes(config), ElementsAre(0, 0, 0, -1));
  EXPECT_THAT(chunks(config), ElementsAre(32, 32, 32, 0));
  EXPECT_GT(config.layers[0].attention.unit_eps, 0);
  EXPECT_EQ(config.layers[3].attention.unit_eps, 0);
  EXPECT_EQ(config.layers[0].attention.growth, 0);
  EXPECT_FLOAT_EQ(config.layers[3].attention.growth, 0.1F);
  EXPECT_EQ(config.layers[3].attention.growth_step, 8192);
  json["no_rope_layers"] = {0, 1, 1, 0};
  EXPECT_THAT(chunks(parse(json)), ElementsAre(0, 32, 32, 0));
  json["no_rope_layers"] = Json::array();
  EXPECT_THAT(chunks(parse(json)), ElementsAre(32, 32, 32, 0)) << "as null";
  json["layer_types"] = {"full_attention", "chunked_attention", "full_attention", "full_attention"};
  EXPECT_THAT(chunks(parse(json)), ElementsAre(0, 32, 0, 0));
  json["attn_temperature_tuning"] = false;
  EXPECT_EQ(parse(json).layers[3].attention.growth, 0);
}

TEST(Llama4Config, WeightsOfExpertsMultiplyTheirInput) {
  Json json = llama4();
  json["interleave_moe_layer_step"] = 2;
  const ModelConfig config = parse(json);
  EXPECT_FALSE(config.layers[0].experts.present());
  EXPECT_EQ(config.layers[0].mlp.width, 80);
  const LayerDesc& layer = config.layers[1];
  EXPECT_TRUE(layer.experts.routing.of_input && layer.experts.routing.sigmoid);
  EXPECT_FALSE(layer.experts.routing.normalized);
  EXPECT_EQ(layer.mlp.width, 96) << "of the expert that every token gets";
  EXPECT_EQ(layer.matrix(layer.experts.down(2)).weight,
            "model.layers.1.feed_forward.experts.2.down_proj.weight");
}

TEST(Llama4Config, ColumnsOfATensorOfAllExpertsAreRowsOfTheirMatrices) {
  const ModelConfig config = parse(llama4());
  const auto& part = *std::find_if(config.parts.begin(), config.parts.end(), [](const auto& p) {
    return p.name == "model.layers.0.feed_forward.experts.1.up_proj.weight";
  });
  EXPECT_THAT(part.shape, ElementsAre(3, 64, 192));
  EXPECT_EQ(part.first, 64 * 192 + 96);
  EXPECT_EQ(part.row_step, 1);
  EXPECT_EQ(part.col_step, 192);
}

// These are the keys that the published models have.
TEST(Llama4Config, PublishedFilesAreRead) {
  Json text = llama4();
  text.erase("architectures");
  text.erase("rope_parameters");
  text["_attn_implementation_autoset"] = true;
  text["attn_temperature_tuning"] = 4;
  text["cache_implementation"] = "hybrid";
  text["for_llm_compressor"] = false;
  text["moe_layers"] = {0, 1, 2, 3};
  text["output_router_logits"] = false;
  text["router_aux_loss_coef"] = 0.001;
  text["router_jitter_noise"] = 0.0;
  text["rope_theta"] = 500000.0;
  text["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 16.0},
                          {"high_freq_factor", 1.0},
                          {"low_freq_factor", 1.0},
                          {"original_max_position_embeddings", 8192}};
  Json json = {{"architectures", {"Llama4ForConditionalGeneration"}},
               {"model_type", "llama4"},
               {"boi_token_index", 200080},
               {"eoi_token_index", 200081},
               {"image_token_index", 200092},
               {"text_config", text},
               {"vision_config", Json::object()}};
  const ModelConfig config = parse(json);
  EXPECT_EQ(config.whole, "Llama4ForConditionalGeneration");
  EXPECT_GT(config.layers[3].attention.growth, 0);
  const RopeTable table = rope_table(config.ropes[0], 16, 256);
  for (const float frequency : table.frequencies)
    EXPECT_GT(frequency, 0);
  EXPECT_FLOAT_EQ(table.frequencies.back(), std::pow(5e5F, -0.875F) / 16);
}

TEST(Llama4Config, WhatIsNotKnownIsRefused) {
  const auto refused = [](const char* key, const Json& value) {
    Json json = llama4();
    json[key] = value;
    expect_refused(json, key);
  };
  refused("attention_chunk_size", 0);
  refused("attention_chunk_size", nullptr);
  refused("layer_types", {"chunked_attention"});
  refused("layer_types",
          {"sliding_attention", "full_attention", "full_attention", "full_attention"});
  refused("moe_layers", {4});
  refused("moe_layers", 1);
  refused("no_rope_layers", {1, 0});
  refused("floor_scale", 0);
  refused("use_sliding_window", true);
}

}  // namespace
}  // namespace walsh
