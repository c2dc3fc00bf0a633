#include "arch/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config_support.h"

namespace walsh {
namespace {

using testing::Each;
using testing::ElementsAre;
using namespace test;

TEST(Config, ReadsALlamaModel) {
  const ModelConfig c = parse(llama());
  EXPECT_EQ(c.family, "llama");
  ASSERT_EQ(c.layers.size(), 4u);
  const AttentionDesc& a = c.layers.front().attention;
  EXPECT_EQ(a.head_dim, 16);
  EXPECT_EQ(a.query_width(), 64);
  EXPECT_EQ(a.kv_width(), 32);
  EXPECT_FLOAT_EQ(a.scale, 0.25f);
  EXPECT_EQ(a.logit_cap, 0);
  EXPECT_FLOAT_EQ(c.head_input.norm.eps, 1e-5f);
  EXPECT_TRUE(c.tied_head);
  EXPECT_EQ(c.head.weight, c.embedding);
  for (const LayerDesc& layer : c.layers)
    for (const MatrixDesc& m : layer.matrices)
      EXPECT_EQ(m.bias, "");
  EXPECT_FALSE(a.q_norm.present() || a.k_norm.present());
  EXPECT_THAT(c.ropes, ElementsAre(RopeConfig{RopeKind::standard, 500000}));
  EXPECT_THAT(windows(c), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(c.bos, ElementsAre(1));
  EXPECT_THAT(c.eos, ElementsAre(2, 3));
}

TEST(Config, AbsentOptionalKeysHaveTheDefaultsOfTransformers) {
  Json json = llama();
  for (const char* key : {"architectures", "num_key_value_heads", "bos_token_id", "eos_token_id",
                          "tie_word_embeddings", "rope_parameters", "hidden_act"})
    json.erase(key);
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.layers.front().attention.kv_heads, 4);
  EXPECT_FALSE(c.tied_head);
  EXPECT_EQ(c.ropes.front(), RopeConfig{});
  EXPECT_TRUE(c.bos.empty() && c.eos.empty());
}

TEST(Config, LlamaBiasesAndExplicitHeadDim) {
  Json json = llama();
  json["attention_bias"] = true;
  json["mlp_bias"] = true;
  json["head_dim"] = 24;
  const ModelConfig c = parse(json);
  for (const MatrixDesc& m : c.layers.front().matrices)
    EXPECT_NE(m.bias, "") << m.weight;
  EXPECT_EQ(c.layers.front().attention.query_width(), 96);
}

TEST(Config, KeysThatChangeTheFunctionAreRefusedByName) {
  const std::vector<std::pair<const char*, Json>> cases = {
      {"hidden_act", "gelu"},
      {"attn_logit_softcapping", 50.0},
      {"final_logit_softcapping", 30.0},
      {"quantization_config", {{"quant_method", "aqlm"}}},
      {"partial_rotary_factor", 0.5},
      {"sliding_window", 128},
      {"rope_interleaved", true},
      {"residual_multiplier", 0.22},
      {"layer_types", {"full_attention", "chunked_attention"}},
      {"num_experts", 8},
      {"some_future_switch", false},
  };
  for (const auto& [key, value] : cases) {
    Json json = llama();
    json[key] = value;
    expect_refused(json, key);
    json[key] = nullptr;
    EXPECT_NO_THROW(parse(json)) << key << " that is null is not set";
  }
}

TEST(Config, UnknownArchitectureIsRefusedWithTheSupportedOnes) {
  expect_refused(of_family("gpt2", "GPT2LMHeadModel"), "GPT2LMHeadModel");
  expect_refused(of_family("gpt2", "GPT2LMHeadModel"), "Qwen3ForCausalLM");
  expect_refused(of_family("gpt2", "GPT2LMHeadModel"), "Gemma3ForConditionalGeneration");
  expect_refused(of_family("llama", "LlamaForSequenceClassification"), "SequenceClassification");
  expect_refused(of_family("llama", "MistralForCausalLM"), "MistralForCausalLM");
  expect_refused(of_family("gpt2", "LlamaForCausalLM"), "model_type");
  Json json = llama();
  json["architectures"] = Json::array();
  expect_refused(json, "architectures");
  json = llama();
  json.erase("model_type");
  EXPECT_EQ(parse(json).family, "llama") << "the architecture says it";
  json.erase("architectures");
  expect_refused(json, "model_type");
}

TEST(Config, IdsMayLieOutsideTheVocabulary) {
  Json json = llama();
  json["eos_token_id"] = {100000, -1};
  json["bos_token_id"] = 100000;
  EXPECT_THAT(parse(json).eos, ElementsAre(100000, -1)) << "only who generates text needs them";
  EXPECT_THAT(parse(json).bos, ElementsAre(100000));
}

TEST(Config, NumbersOutOfRangeAreRefusedByName) {
  const std::vector<std::pair<const char*, std::vector<Json>>> cases = {
      {"num_hidden_layers", {0, -1, 1025, 2.5, "4", 18446744073709551615u}},
      {"hidden_size", {0, -64, (1 << 20) + 1}},
      {"intermediate_size", {0, 1 << 30}},
      {"num_attention_heads", {0, 4097}},
      {"num_key_value_heads", {0, 3, 8}},
      {"head_dim", {0, 3, 12, 1025}},
      {"vocab_size", {0, (1 << 24) + 1}},
      {"max_position_embeddings", {0, -5}},
      {"rms_norm_eps", {-1, 2, "x"}},
      {"eos_token_id", {1.5, Json::array({1, "x"}), "two", 18446744073709551615u}},
      {"tie_word_embeddings", {1, "yes"}},
  };
  for (const auto& [key, values] : cases) {
    for (const Json& value : values) {
      Json json = llama();
      json[key] = value;
      expect_refused(json, key);
    }
    if (key == std::string("num_hidden_layers") || key == std::string("vocab_size")) {
      Json json = llama();
      json.erase(key);
      expect_refused(json, key);
    }
  }
  Json json = llama();
  json["hidden_size"] = 66;
  expect_refused(json, "hidden_size");
}

TEST(Config, TextThatIsNotAnObjectIsRefused) {
  for (const char* text : {"", "[]", "3", "{", "{\"a\":1}", "null", "{\"model_type\": 5}"}) {
    EXPECT_THROW(parse_config(text, "config.json"), Error) << text;
  }
}

}  // namespace
}  // namespace walsh
