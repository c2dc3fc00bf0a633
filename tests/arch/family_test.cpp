// Tests how each family reads config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "arch/plan.h"
#include "config_support.h"

namespace walsh {
namespace {

using testing::Each;
using testing::ElementsAre;
using namespace test;

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

TEST(Families, SmolLm3GoesWithoutRopeInEveryFourthLayer) {
  Json json = of_family("smollm3", "SmolLM3ForCausalLM");
  EXPECT_THAT(ropes(parse(json)), ElementsAre(0, 0, 0, -1));
  json["no_rope_layers"] = {0, 1, 1, 0};
  json["use_sliding_window"] = true;
  json["sliding_window"] = 7;
  EXPECT_THAT(ropes(parse(json)), ElementsAre(-1, 0, 0, -1));
  EXPECT_THAT(windows(parse(json)), ElementsAre(7, 0, 0, 7)) << "where there is no rope";
  json["no_rope_layers"] = {0, 1};
  expect_refused(json, "no_rope_layers");
  json["no_rope_layers"] = {0, 1, 2, 3};
  expect_refused(json, "no_rope_layers");
}

TEST(Families, GraniteMultipliersNeedNoOperationOfTheirOwn) {
  Json json = of_family("granite", "GraniteForCausalLM");
  json["residual_multiplier"] = 0.5;
  json["embedding_multiplier"] = 12.0;
  json["logits_scaling"] = 8.0;
  json["attention_multiplier"] = 0.03125;
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.embedding_scale, 24);
  EXPECT_EQ(c.logit_scale, 0.125f);
  EXPECT_EQ(c.layers[0].attention.scale, 0.03125f);
  EXPECT_EQ(c.layers[0].branch_scale, 1);
  EXPECT_FLOAT_EQ(c.head_input.norm.eps, 4e-5f);
  json["residual_multiplier"] = 0;
  expect_refused(json, "residual_multiplier");
}

TEST(Families, OlmoNormsAreBehindBlocksAndOverAllHeads) {
  const ModelConfig c = parse(of_family("olmo2", "Olmo2ForCausalLM"));
  const LayerDesc& layer = c.layers.front();
  for (const ActivationDesc& activation : layer.activations)
    EXPECT_FALSE(activation.norm.present()) << activation.name;
  EXPECT_TRUE(layer.after_attention.present() && layer.after_mlp.present());
  EXPECT_EQ(layer.attention.q_norm.width, 64);
  EXPECT_EQ(layer.attention.k_norm.width, 32);
  EXPECT_TRUE(layer.attention.norms_all_heads());
  Json json = of_family("olmo3", "Olmo3ForCausalLM");
  json["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}}}};
  json["sliding_window"] = 9;
  EXPECT_THAT(windows(parse(json)), ElementsAre(9, 9, 9, 0));
  EXPECT_THAT(parse(json).ropes, Each(RopeConfig{RopeKind::standard, 500000}));
}

TEST(Families, Glm4HasNeighboursRotatedTogether) {
  Json json = of_family("glm4", "Glm4ForCausalLM");
  json["head_dim"] = 32;
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.ropes.front().share, 0.5);
  const TensorPart& q = c.parts.front();
  EXPECT_EQ(q.name, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(q.source, q.name);
  EXPECT_EQ(q.turned, 16);
  EXPECT_EQ(q.head_dim, 32);
  EXPECT_EQ(c.layers[0].after_attention.weight, "model.layers.0.post_self_attn_layernorm.weight");
  json["model_type"] = "glm";
  json["architectures"] = {"GlmForCausalLM"};
  EXPECT_FALSE(parse(json).layers[0].after_attention.present());
}

TEST(Families, Ministral3RaisesQueriesBehindThePositionsOfItsTraining) {
  Json json = of_family("ministral3", "Ministral3ForCausalLM");
  json["rope_parameters"] = {{"rope_type", "yarn"},
                             {"factor", 16.0},
                             {"original_max_position_embeddings", 100},
                             {"max_position_embeddings", 256},
                             {"llama_4_scaling_beta", 0.1}};
  const RopeConfig rope = parse(json).ropes.front();
  EXPECT_EQ(query_scale(rope, 99), 1);
  EXPECT_FLOAT_EQ(query_scale(rope, 250), static_cast<float>(1 + 0.1 * std::log(3)));
  json.erase("rope_parameters");
  expect_refused(json, "rope_parameters");
  json = llama();
  json["rope_parameters"]["llama_4_scaling_beta"] = 0.1;
  expect_refused(json, "llama_4_scaling_beta");
}

Json composite() {
  Json text = of_family("mistral", "MistralForCausalLM");
  text.erase("architectures");
  text.erase("eos_token_id");
  return {{"architectures", {"Mistral3ForConditionalGeneration"}},
          {"model_type", "mistral3"},
          {"text_config", text},
          {"vision_config", {{"model_type", "pixtral"}}},
          {"image_token_index", 10},
          {"tie_word_embeddings", false},
          {"eos_token_id", 7}};
}

TEST(Families, TheTextPartOfAModelOfSeveralParts) {
  const ModelConfig c = parse(composite());
  EXPECT_EQ(c.family, "mistral");
  EXPECT_EQ(c.whole, "Mistral3ForConditionalGeneration");
  EXPECT_FALSE(c.tied_head) << "what the whole says goes before";
  EXPECT_THAT(c.eos, ElementsAre(7));
  EXPECT_FALSE(c.stored_names.empty());
  EXPECT_TRUE(parse(llama()).stored_names.empty());
}

// The files of the 4-billion model have it so.
TEST(Families, Gemma3SaysOnlyInWhatItDiffersFromTheDefaultsOfTransformers) {
  const Json json = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                     {"model_type", "gemma3"},
                     {"boi_token_index", 255999},
                     {"eoi_token_index", 256000},
                     {"eos_token_id", {1, 106}},
                     {"image_token_index", 262144},
                     {"initializer_range", 0.02},
                     {"mm_tokens_per_image", 256},
                     {"text_config",
                      {{"hidden_size", 2560},
                       {"intermediate_size", 10240},
                       {"model_type", "gemma3_text"},
                       {"num_hidden_layers", 34},
                       {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                       {"sliding_window", 1024}}},
                     {"vision_config", {{"model_type", "siglip_vision_model"}}}};
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.vocab, 262208);
  EXPECT_EQ(c.layers.size(), 34u);
  const AttentionDesc &local = c.layers[4].attention, &whole = c.layers[5].attention;
  EXPECT_EQ(local.heads, 8);
  EXPECT_EQ(local.kv_heads, 4);
  EXPECT_EQ(local.head_dim, 256);
  EXPECT_EQ(local.window, 1024);
  EXPECT_EQ(whole.window, 0);
  EXPECT_EQ(c.ropes[static_cast<size_t>(local.rope)], (RopeConfig{RopeKind::standard, 10000}));
  EXPECT_EQ(c.ropes[static_cast<size_t>(whole.rope)], (RopeConfig{RopeKind::linear, 1e6, 8}));
  EXPECT_TRUE(c.tied_head);
}

// The files of the model with 2 billion effective weights have it so.
Json gemma4() {
  std::vector<std::string> types;
  for (int i = 0; i < 35; ++i)
    types.push_back((i + 1) % 5 == 0 ? "full_attention" : "sliding_attention");
  return {{"architectures", {"Gemma4ForConditionalGeneration"}},
          {"model_type", "gemma4"},
          {"boa_token_id", 256000},
          {"eoa_token_id", 258883},
          {"vision_soft_tokens_per_image", 280},
          {"audio_config", {{"model_type", "gemma4_audio"}}},
          {"vision_config", {{"model_type", "gemma4_vision"}}},
          {"tie_word_embeddings", true},
          {"text_config",
           {{"model_type", "gemma4_text"},
            {"attention_k_eq_v", false},
            {"enable_moe_block", false},
            {"final_logit_softcapping", 30.0},
            {"global_head_dim", 512},
            {"head_dim", 256},
            {"hidden_size", 1536},
            {"hidden_size_per_layer_input", 256},
            {"intermediate_size", 6144},
            {"layer_types", types},
            {"num_attention_heads", 8},
            {"num_experts", nullptr},
            {"num_global_key_value_heads", nullptr},
            {"num_hidden_layers", 35},
            {"num_key_value_heads", 1},
            {"num_kv_shared_layers", 20},
            {"sliding_window", 512},
            {"use_bidirectional_attention", nullptr},
            {"use_double_wide_mlp", true},
            {"vocab_size", 262144},
            {"vocab_size_per_layer_input", 262144}}}};
}

TEST(Families, Gemma4HasHeadsOfTwoSizesAndLayersThatShareCaches) {
  const ModelConfig c = parse(gemma4());
  const AttentionDesc &local = c.layers[13].attention, &whole = c.layers[14].attention;
  EXPECT_EQ(local.head_dim, 256);
  EXPECT_EQ(local.window, 512);
  EXPECT_EQ(whole.head_dim, 512);
  EXPECT_EQ(whole.window, 0);
  EXPECT_EQ(whole.scale, 1);
  EXPECT_EQ(whole.cache_of, -1);
  EXPECT_EQ(c.layers[15].attention.cache_of, 13);
  EXPECT_EQ(c.layers[34].attention.cache_of, 14);
  EXPECT_EQ(c.layers[34].attention.cached_keys(), 0);
  EXPECT_EQ(c.left_out.size(), 20u * 4);
  EXPECT_EQ(c.left_out.front(), "model.layers.15.self_attn.k_proj.");
  EXPECT_EQ(c.layers[14].mlp.width, 6144);
  EXPECT_EQ(c.layers[15].mlp.width, 12288);
  EXPECT_EQ(c.layer_embedding.cols, 35 * 256);
  EXPECT_EQ(rope_head_dim(c, 0), 512);
  EXPECT_EQ(rope_head_dim(c, 1), 256);
  const RopeTable table = rope_table(c.ropes[0], 512, 4096);
  ASSERT_EQ(table.frequencies.size(), 256u);
  EXPECT_GT(table.frequencies[63], 0);
  EXPECT_EQ(table.frequencies[64], 0);
  EXPECT_FLOAT_EQ(table.frequencies[63], static_cast<float>(std::pow(1e6, -126.0 / 512)));
  EXPECT_FALSE(make_plan(c).residual.refusal.empty());
}

TEST(Families, Gemma4SaysWhatItDoesNotTake) {
  const auto refused = [&](const char* key, const Json& value, const char* reason) {
    Json json = gemma4();
    json["text_config"][key] = value;
    expect_refused(json, reason);
  };
  refused("use_bidirectional_attention", "all", "use_bidirectional_attention");
  refused("vocab_size_per_layer_input", 262145, "vocab_size_per_layer_input");
  refused("num_kv_shared_layers", 35, "num_kv_shared_layers");
  refused("num_kv_shared_layers", 31, "no layer before has the kind of layer");
  refused("enable_moe_block", true, "num_experts");
  refused("per_layer_config", {{"35", {{"head_dim", 64}}}}, "per_layer_config");
  refused("per_layer_config", {{"3", {{"rope_theta", 64}}}}, "per_layer_config: 3");
  refused("per_layer_config", {{"3", {{"head_dim", 64}}}}, "have one rope");
  refused("per_layer_config", {{"14", {{"num_key_value_heads", 2}}}}, "other heads");
}

TEST(Families, AModelOfSeveralPartsIsRefusedByName) {
  Json json = composite();
  json["fusion"] = "late";
  expect_refused(json, "fusion");
  json = composite();
  json["text_config"]["some_future_switch"] = 1;
  expect_refused(json, "text_config: unknown key \"some_future_switch\"");
  json = composite();
  json["architectures"] = {"UnknownForConditionalGeneration"};
  expect_refused(json, "UnknownForConditionalGeneration");
  json = composite();
  json["text_config"] = 3;
  expect_refused(json, "not supported");
}

TEST(Config, MatricesInFp8AndMxfp4) {
  Json json = llama();
  json["quantization_config"] = {{"quant_method", "fp8"},
                                 {"fmt", "e4m3"},
                                 {"activation_scheme", "dynamic"},
                                 {"weight_block_size", {128, 64}}};
  EXPECT_EQ(parse(json).stored, (StoredMethod{StoredMethod::Kind::fp8, 128, 64}));
  json["quantization_config"]["weight_block_size"] = nullptr;
  EXPECT_EQ(parse(json).stored.block_rows, 0);
  json["quantization_config"]["weight_block_size"] = {128, 0};
  expect_refused(json, "weight_block_size");
  json["quantization_config"] = {{"quant_method", "fp8"}, {"fmt", "e5m2"}};
  expect_refused(json, "fmt");
  json["quantization_config"] = {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"x"}}};
  EXPECT_EQ(parse(json).stored.kind, StoredMethod::Kind::mxfp4);
  json["quantization_config"]["weights"] = 3;
  expect_refused(json, "quantization_config: unknown key \"weights\"");
  EXPECT_EQ(parse(llama()).stored, StoredMethod{});
}

TEST(Family, NullMultipliersAndSharesAreWhatTransformersMakesOfThem) {
  Json json = of_family("granite", "GraniteForCausalLM");
  EXPECT_FLOAT_EQ(parse(json).layers[0].attention.scale, 1);
  json["attention_multiplier"] = nullptr;
  EXPECT_FLOAT_EQ(parse(json).layers[0].attention.scale, 0.25F) << "the usual scale of heads of 16";
  json["residual_multiplier"] = nullptr;
  expect_refused(json, "residual_multiplier");
  for (const auto& [type, architecture] :
       {std::pair("glm", "GlmForCausalLM"), std::pair("glm4", "Glm4ForCausalLM")}) {
    json = of_family(type, architecture);
    EXPECT_EQ(parse(json).ropes[0].share, 0.5);
    json["partial_rotary_factor"] = nullptr;
    EXPECT_EQ(parse(json).ropes[0].share, 1);
  }
}

TEST(Family, ANullIsRefusedWhereTransformersFailsWithIt) {
  Json json = of_family("gemma3_text", "Gemma3ForCausalLM");
  json.erase("rope_parameters");  // those of other families
  json["hidden_act"] = "gelu_pytorch_tanh";
  const size_t layers = parse(json).layers.size();
  json["sliding_window_pattern"] = nullptr;
  expect_refused(json, "sliding_window_pattern");
  json["layer_types"] = std::vector<std::string>(layers, "full_attention");
  EXPECT_NO_THROW(parse(json)) << "the list of layer types replaces the pattern";
  json["sliding_window"] = nullptr;
  expect_refused(json, "sliding_window");
}

}  // namespace
}  // namespace walsh
