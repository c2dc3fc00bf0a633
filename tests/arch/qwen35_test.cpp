#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "arch/plan.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

Json qwen35() {
  return Json::parse(R"({
    "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_act": "silu",
    "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96, "head_dim": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16, "linear_value_head_dim": 32, "linear_num_key_heads": 2,
    "linear_num_value_heads": 6, "tie_word_embeddings": true, "attn_output_gate": true,
    "mamba_ssm_dtype": "float32",
    "rope_parameters": {"rope_theta": 1e7, "rope_type": "default"}})");
}

ModelConfig parse(const Json& json) {
  return parse_config(json.dump(), "config.json");
}

void expect_refused(const Json& json, const std::string& part) {
  try {
    parse(json);
    FAIL() << "accepted, expected an error with: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_THAT(e.what(), HasSubstr(part));
  }
}

std::vector<bool> recurrent_layers(const Json& json) {
  std::vector<bool> list;
  for (const LayerDesc& layer : parse(json).layers) {
    EXPECT_NE(layer.delta_net.present(), layer.attention.present());
    list.push_back(layer.delta_net.present());
  }
  return list;
}

TEST(Qwen35, LayersAreDeltaNetsOrGatedAttention) {
  const ModelConfig config = parse(qwen35());
  EXPECT_TRUE(is_recurrent(config));
  const DeltaNetDesc& d = config.layers[0].delta_net;
  EXPECT_EQ(d.group(), 3);
  EXPECT_EQ(d.channels(), 2 * 32 + 192);
  EXPECT_EQ(config.layers[0].matrix(d.qkv).rows, d.channels());
  EXPECT_EQ(config.layers[0].matrix(d.a).rows, 6);
  EXPECT_EQ(d.norm.gain_offset, 0);
  const AttentionDesc& a = config.layers[3].attention;
  EXPECT_TRUE(a.gated);
  EXPECT_EQ(config.layers[3].matrix(a.q).rows, 2 * a.query_width());
  EXPECT_EQ(a.q_norm.gain_offset, 1);
  EXPECT_EQ(config.ropes[0].share, 0.25);
}

TEST(Qwen35, LayerTypesOrTheirInterval) {
  Json json = qwen35();
  EXPECT_THAT(recurrent_layers(json), ElementsAre(true, true, true, false));
  json["full_attention_interval"] = 2;
  EXPECT_THAT(recurrent_layers(json), ElementsAre(true, false, true, false));
  json["layer_types"] = {"full_attention", "linear_attention", "full_attention",
                         "linear_attention"};
  EXPECT_THAT(recurrent_layers(json), ElementsAre(false, true, false, true));
  json["layer_types"][1] = "sliding_attention";
  expect_refused(json, "layer_types");
  json["layer_types"] = {"full_attention"};
  expect_refused(json, "one entry per layer");
}

TEST(Qwen35, HeadsThatDoNotFitAreRefusedByName) {
  for (const auto& [key, value] : {std::pair{"linear_num_value_heads", 5},
                                   {"linear_num_value_heads", 0},
                                   {"linear_key_head_dim", 24},
                                   {"linear_value_head_dim", 512},
                                   {"linear_conv_kernel_dim", 1},
                                   {"linear_conv_kernel_dim", 17},
                                   {"linear_num_key_heads", -1}}) {
    Json json = qwen35();
    json[key] = value;
    expect_refused(json, key);
  }
  Json json = qwen35();
  json["attn_output_gate"] = false;
  expect_refused(json, "attn_output_gate");
}

TEST(Qwen35, ARotationIsFoldedButNotIntoHeadsWithGates) {
  const ResidualPlan plan = make_plan(parse(qwen35())).residual;
  EXPECT_EQ(plan.refusal, "");
  for (const FoldedTensor& tensor : plan.tensors) {
    EXPECT_NE(tensor.rows, Basis::heads) << tensor.name;
    EXPECT_NE(tensor.cols, Basis::heads) << tensor.name;
  }
}

}  // namespace
}  // namespace walsh
