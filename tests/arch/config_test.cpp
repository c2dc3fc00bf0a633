#include "arch/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "arch/rope.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using Json = nlohmann::json;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

Json llama() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "bos_token_id": 1, "eos_token_id": [2, 3], "tie_word_embeddings": true,
    "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
    "torch_dtype": "bfloat16", "pretraining_tp": 1, "use_cache": true})");
}

Json of_family(const char* type, const char* architecture) {
  Json json = llama();
  json["model_type"] = type;
  json["architectures"] = {architecture};
  return json;
}

ModelConfig parse(const Json& json) {
  return parse_config(json.dump(), "config.json");
}

std::vector<int64_t> windows(const ModelConfig& config) {
  std::vector<int64_t> list;
  for (const LayerDesc& layer : config.layers)
    list.push_back(layer.attention.window);
  return list;
}

bool has_bias(const ModelConfig& config, int matrix) {
  return !config.layers.front().matrix(matrix).bias.empty();
}

void expect_refused(const Json& json, const std::string& part) {
  try {
    parse(json);
    FAIL() << "accepted, expected an error with: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_THAT(e.what(), HasSubstr("config.json"));
    EXPECT_THAT(e.what(), HasSubstr(part));
  }
}

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

TEST(Config, MistralWindowCoversAllLayersUnlessItIsNull) {
  Json json = of_family("mistral", "MistralForCausalLM");
  EXPECT_THAT(windows(parse(json)), Each(4096)) << "the default of transformers";
  json["sliding_window"] = 16;
  EXPECT_THAT(windows(parse(json)), Each(16));
  json["sliding_window"] = nullptr;
  EXPECT_THAT(windows(parse(json)), Each(0));
}

TEST(Config, QwenWindowsFollowMaxWindowLayersOrLayerTypes) {
  Json json = of_family("qwen2", "Qwen2ForCausalLM");
  json["sliding_window"] = 32;
  json["max_window_layers"] = 3;
  EXPECT_THAT(windows(parse(json)), Each(0)) << "use_sliding_window is false";
  json["use_sliding_window"] = true;
  EXPECT_THAT(windows(parse(json)), ElementsAre(0, 0, 0, 32));
  json["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                         "sliding_attention"};
  EXPECT_THAT(windows(parse(json)), ElementsAre(32, 0, 0, 32));
  json["use_sliding_window"] = false;
  expect_refused(json, "layer_types");
  json["use_sliding_window"] = true;
  json["layer_types"].erase(0);
  expect_refused(json, "one entry per layer");
}

TEST(Config, Qwen2HasQkvBiasAndQwen3HasQkNorm) {
  const ModelConfig qwen2 = parse(of_family("qwen2", "Qwen2ForCausalLM"));
  const AttentionDesc& a = qwen2.layers.front().attention;
  EXPECT_TRUE(has_bias(qwen2, a.q) && has_bias(qwen2, a.k) && has_bias(qwen2, a.v));
  EXPECT_FALSE(has_bias(qwen2, a.o) || a.q_norm.present());
  const ModelConfig qwen3 = parse(of_family("qwen3", "Qwen3ForCausalLM"));
  const AttentionDesc& b = qwen3.layers.front().attention;
  EXPECT_EQ(b.q_norm.weight, "model.layers.0.self_attn.q_norm.weight");
  EXPECT_EQ(b.k_norm.width, 128);
  EXPECT_FALSE(has_bias(qwen3, b.q));
  EXPECT_EQ(b.head_dim, 128) << "the default of transformers, not hidden / heads";
}

TEST(Config, RopeOfBothStyles) {
  Json json = llama();
  json.erase("rope_parameters");
  json["rope_theta"] = 10000;
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 4}};
  EXPECT_EQ(parse(json).ropes.front(), (RopeConfig{RopeKind::linear, 10000, 4}));
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 8192}};
  const RopeConfig llama3 = {RopeKind::llama3, 10000, 8, 1, 4, 8192};
  EXPECT_EQ(parse(json).ropes.front(), llama3);
  json["rope_parameters"] = json["rope_scaling"];
  EXPECT_EQ(parse(json).ropes.front(), llama3) << "both styles, saying the same";
  json["rope_scaling"]["rope_theta"] = 10000.0;
  EXPECT_EQ(parse(json).ropes.front(), llama3) << "said twice";
  json["rope_parameters"]["factor"] = 4.0;
  expect_refused(json, "contradicts");
}

TEST(Config, RopePerKindOfLayerMustBeTheSame) {
  Json json = llama();
  const Json one = {{"rope_type", "default"}, {"rope_theta", 7000.0}};
  json["rope_parameters"] = {{"full_attention", one}, {"sliding_attention", one}};
  EXPECT_EQ(parse(json).ropes.front().theta, 7000);
  json["rope_parameters"]["sliding_attention"]["rope_theta"] = 8000.0;
  expect_refused(json, "per kind of layer");
}

TEST(Config, UnsupportedRopeIsRefusedByName) {
  for (const char* kind : {"yarn", "dynamic", "mrope"}) {
    Json json = llama();
    json["rope_parameters"]["rope_type"] = kind;
    expect_refused(json, "rope_type");
    json.erase("rope_parameters");
    json["rope_scaling"] = {{"type", kind}, {"factor", 2.0}};
    expect_refused(json, "rope_scaling: 'type'");
  }
  Json json = llama();
  json["rope_parameters"]["partial_rotary_factor"] = 0.5;
  expect_refused(json, "partial_rotary_factor");
  json = llama();
  json["rope_parameters"] = {{"rope_type", "linear"}};
  expect_refused(json, "factor");
  json["rope_parameters"] = {{"rope_type", "default"}, {"mscale", 1.0}};
  expect_refused(json, "mscale");
}

TEST(Config, KeysThatChangeTheFunctionAreRefusedByName) {
  const std::vector<std::pair<const char*, Json>> cases = {
      {"hidden_act", "gelu"},
      {"attn_logit_softcapping", 50.0},
      {"final_logit_softcapping", 30.0},
      {"quantization_config", {{"quant_method", "gptq"}}},
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
  expect_refused(of_family("gemma", "GemmaForCausalLM"), "GemmaForCausalLM");
  expect_refused(of_family("gemma", "GemmaForCausalLM"), "Qwen3ForCausalLM");
  expect_refused(of_family("llama", "LlamaForSequenceClassification"), "SequenceClassification");
  expect_refused(of_family("llama", "MistralForCausalLM"), "MistralForCausalLM");
  expect_refused(of_family("gemma", "LlamaForCausalLM"), "model_type");
  Json json = llama();
  json["architectures"] = Json::array();
  expect_refused(json, "architectures");
  json = llama();
  json.erase("model_type");
  EXPECT_EQ(parse(json).family, "llama") << "the architecture says it";
  json.erase("architectures");
  expect_refused(json, "model_type");
}

TEST(Config, TwoDifferentValuesOfRopeThetaAreRefused) {
  Json json = llama();
  json.erase("rope_parameters");
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 7000.0}};
  EXPECT_EQ(parse(json).ropes.front(), (RopeConfig{RopeKind::linear, 7000, 2})) << "the only one";
  json["rope_theta"] = 10000.0;
  expect_refused(json, "rope_theta contradicts");
  json["rope_theta"] = 7000;
  EXPECT_EQ(parse(json).ropes.front().theta, 7000);
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

TEST(Rope, FrequenciesByHand) {
  const auto standard = rope_table({RopeKind::standard, 10000}, 8, 1).frequencies;
  EXPECT_THAT(standard, testing::Pointwise(testing::FloatEq(), {1.0f, 0.1f, 0.01f, 0.001f}));
  const auto linear = rope_table({RopeKind::linear, 10000, 4}, 8, 1).frequencies;
  EXPECT_THAT(linear, testing::Pointwise(testing::FloatEq(), {0.25f, 0.025f, 0.0025f, 0.00025f}));
}

TEST(Rope, Llama3KeepsShortWavelengthsAndDividesLongOnes) {
  // Wavelengths 6.28, 62.8, 628, 6283 against the bounds 1000 / 4 and 1000 / 1.
  const auto f = rope_table({RopeKind::llama3, 10000, 8, 1, 4, 1000}, 8, 1).frequencies;
  EXPECT_FLOAT_EQ(f[0], 1.0f);
  EXPECT_FLOAT_EQ(f[1], 0.1f);
  const double blend = (1000 / (2 * M_PI / 0.01) - 1) / 3;
  EXPECT_FLOAT_EQ(f[2], static_cast<float>((1 - blend) * 0.01 / 8 + blend * 0.01));
  EXPECT_FLOAT_EQ(f[3], 0.001f / 8);
}

TEST(Rope, LongRopeDividesByTheFactorsOfTheContextThatIsMeant) {
  RopeConfig rope = {RopeKind::longrope, 10000};
  rope.original_max_positions = 64;
  rope.short_factor = {1, 2};
  rope.long_factor = {4, 8};
  rope.attention_factor = 1.25;
  rope.share = 0.5;
  EXPECT_THAT(rope_table(rope, 8, 64).frequencies, ElementsAre(1.0f, 0.005f)) << "half of a head";
  EXPECT_THAT(rope_table(rope, 8, 65).frequencies, ElementsAre(0.25f, 0.00125f));
  EXPECT_EQ(rope_table(rope, 8, 65).magnitude, 1.25f);
}

Json phi3() {
  Json json = of_family("phi3", "Phi3ForCausalLM");
  json.erase("rope_parameters");
  json["max_position_embeddings"] = 256;
  json["original_max_position_embeddings"] = 64;
  json["partial_rotary_factor"] = 0.5;
  json["rope_scaling"] = {{"type", "longrope"},
                          {"short_factor", {1.0, 1.0, 1.0, 1.0}},
                          {"long_factor", {1.0, 2.0, 3.0, 4.0}}};
  return json;
}

TEST(Config, Phi3HasItsMatricesBelowEachOther) {
  const ModelConfig c = parse(phi3());
  ASSERT_EQ(c.parts.size(), 4u * 5);
  EXPECT_EQ(c.parts[1].name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(c.parts[1].source, "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_EQ(c.parts[1].first_row, 64);
  EXPECT_EQ(c.parts[1].rows, 32);
  EXPECT_EQ(c.parts[4].source, "model.layers.0.mlp.gate_up_proj.weight");
  EXPECT_EQ(c.parts[4].first_row, 96);
  const RopeConfig& rope = c.ropes.front();
  EXPECT_EQ(rope.share, 0.5);
  EXPECT_FLOAT_EQ(static_cast<float>(rope.attention_factor),
                  static_cast<float>(std::sqrt(1 + std::log(4.0) / std::log(64.0))));
}

TEST(Config, LongRopeFactorsMustFit) {
  Json json = phi3();
  json["rope_scaling"]["short_factor"].erase(0);
  expect_refused(json, "long_factor");
  json["rope_scaling"]["long_factor"].erase(0);
  expect_refused(json, "3 factors, expected 4");
  json = phi3();
  json["rope_scaling"]["long_factor"][2] = 0;
  expect_refused(json, "long_factor");
  json = phi3();
  json.erase("original_max_position_embeddings");
  expect_refused(json, "original_max_position_embeddings");
}

TEST(Config, Gemma2HasNormsOnBothSidesAndCaps) {
  Json json = of_family("gemma2", "Gemma2ForCausalLM");
  json.erase("hidden_act");
  json["hidden_activation"] = "gelu_pytorch_tanh";
  json["query_pre_attn_scalar"] = 64;
  json["sliding_window"] = 8;
  const ModelConfig c = parse(json);
  const LayerDesc& layer = c.layers.front();
  EXPECT_EQ(layer.after_attention.weight, "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(layer.after_mlp.weight, "model.layers.0.post_feedforward_layernorm.weight");
  EXPECT_EQ(layer.activations[2].norm.weight, "model.layers.0.pre_feedforward_layernorm.weight");
  EXPECT_EQ(layer.activations[2].norm.gain_offset, 1);
  EXPECT_EQ(layer.mlp.function, GateFunction::gelu_tanh);
  EXPECT_FLOAT_EQ(layer.attention.scale, 0.125f);
  EXPECT_EQ(layer.attention.head_dim, 256) << "the default of transformers";
  EXPECT_EQ(layer.attention.logit_cap, 50);
  EXPECT_EQ(c.logit_cap, 30);
  EXPECT_EQ(c.embedding_scale, 8);
  EXPECT_THAT(windows(c), ElementsAre(8, 0, 8, 0));
  json["attn_logit_softcapping"] = nullptr;
  EXPECT_EQ(parse(json).layers.front().attention.logit_cap, 0);
  json["hidden_activation"] = "relu";
  expect_refused(json, "hidden_activation");
}

}  // namespace
}  // namespace walsh
