// Tests kinds of rope: parameters in config.json and the resulting frequencies.
#include "arch/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "config_support.h"

namespace walsh {
namespace {

using testing::ElementsAre;
using namespace test;

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
  for (const char* kind : {"ntk", "proportional", "axial"}) {
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

TEST(Rope, FrequenciesByHand) {
  const auto standard = rope_table({RopeKind::standard, 10000}, 8, 1).frequencies;
  EXPECT_THAT(standard, testing::Pointwise(testing::FloatEq(), {1.0f, 0.1f, 0.01f, 0.001f}));
  const auto linear = rope_table({RopeKind::linear, 10000, 4}, 8, 1).frequencies;
  EXPECT_THAT(linear, testing::Pointwise(testing::FloatEq(), {0.25f, 0.025f, 0.0025f, 0.00025f}));
}

TEST(Rope, Llama3KeepsShortWavelengthsAndDividesLongOnes) {
  // Wavelengths of 6.28, 62.8, 628 and 6283 meet the bounds 1000 / 4 and 1000 / 1.
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

TEST(Rope, YarnKeepsFastPairsAndDividesSlowOnes) {
  // In 1,000 positions the pairs make 159, 15.9, 1.59 and 0.159 turns.
  RopeConfig rope = {RopeKind::yarn, 10000, 8};
  rope.original_max_positions = 1000;
  const auto whole = rope_table(rope, 8, 1).frequencies;
  // 32 turns lie at pair 0.69 and 1 turn at 2.20, which become 0 and 3.
  EXPECT_FLOAT_EQ(whole[0], 1.0f);
  EXPECT_FLOAT_EQ(whole[1], 0.1f * (2.0f / 3 + 1.0f / 3 / 8));
  EXPECT_FLOAT_EQ(whole[2], 0.01f * (1.0f / 3 + 2.0f / 3 / 8));
  EXPECT_FLOAT_EQ(whole[3], 0.001f / 8);
  rope.truncate = false;
  const double low = 4 * std::log10(1000 / (32 * 2 * M_PI)) / 4;
  const double high = 4 * std::log10(1000 / (2 * M_PI)) / 4;
  const double divided = (1 - low) / (high - low);
  const auto exact = rope_table(rope, 8, 1).frequencies;
  EXPECT_FLOAT_EQ(exact[1], static_cast<float>(0.1 * (1 - divided + divided / 8)));
}

TEST(Rope, DynamicGrowsItsBaseBehindThePositionsOfTheTraining) {
  RopeConfig rope = {RopeKind::dynamic, 10000, 4};
  rope.original_max_positions = 64;
  const RopeConfig plain = {RopeKind::standard, 10000};
  EXPECT_EQ(rope_table(rope, 8, 64).frequencies, rope_table(plain, 8, 64).frequencies);
  const double theta = 10000 * std::pow(4.0 * 2 - 3, 8.0 / 6);
  EXPECT_FLOAT_EQ(rope_table(rope, 8, 128).frequencies[1],
                  static_cast<float>(std::pow(theta, -0.25)));
}

TEST(Config, YarnParameters) {
  Json json = llama();
  json["rope_parameters"] = {{"rope_type", "yarn"}, {"rope_theta", 10000.0}, {"factor", 4.0}};
  RopeConfig rope = parse(json).ropes.front();
  EXPECT_EQ(rope.kind, RopeKind::yarn);
  EXPECT_EQ(rope.original_max_positions, 256) << "that of the model";
  EXPECT_DOUBLE_EQ(rope.attention_factor, 0.1 * std::log(4.0) + 1);
  json["rope_parameters"]["mscale"] = 1.0;
  json["rope_parameters"]["mscale_all_dim"] = 1.0;
  json["rope_parameters"]["original_max_position_embeddings"] = 64;
  rope = parse(json).ropes.front();
  EXPECT_DOUBLE_EQ(rope.attention_factor, 1);
  EXPECT_EQ(rope.original_max_positions, 64);
  json["rope_parameters"]["attention_factor"] = 1.5;
  EXPECT_EQ(parse(json).ropes.front().attention_factor, 1.5);
  json["rope_parameters"]["rope_theta"] = 1.0;
  expect_refused(json, "rope_theta");
  json["rope_parameters"] = {{"rope_type", "yarn"}, {"short_factor", {1.0}}};
  expect_refused(json, "short_factor");
}

TEST(Config, PositionsOfTheTrainingOutsideOfTheParametersCount) {
  for (const char* kind : {"yarn", "llama3", "longrope"}) {
    Json json = llama();
    json["rope_parameters"] = {{"rope_type", kind}, {"original_max_position_embeddings", 64}};
    Json& rope = json["rope_parameters"];
    if (kind == std::string("longrope")) {
      rope["short_factor"] = rope["long_factor"] = std::vector<double>(8, 2.0);
    } else {
      rope["factor"] = 4.0;
    }
    if (kind == std::string("llama3")) rope["low_freq_factor"] = rope["high_freq_factor"] = 1.0;
    EXPECT_EQ(parse(json).ropes.front().original_max_positions, 64) << kind;
    json["original_max_position_embeddings"] = 16;
    EXPECT_EQ(parse(json).ropes.front().original_max_positions, 16) << kind << ": as transformers";
  }
}

TEST(Config, ARopeThatNoLayerUsesIsCheckedAsWell) {
  Json json = of_family("smollm3", "SmolLM3ForCausalLM");
  json["no_rope_layers"] = {0, 0, 0, 0};
  json["rope_parameters"] = {{"rope_type", "longrope"},
                             {"short_factor", {2.0}},
                             {"long_factor", {2.0}},
                             {"original_max_position_embeddings", 64}};
  expect_refused(json, "rope has 1 factors");
  json["rope_parameters"]["short_factor"] = json["rope_parameters"]["long_factor"] =
      std::vector<double>(8, 2.0);
  EXPECT_THAT(ropes(parse(json)), ElementsAre(-1, -1, -1, -1));
}

TEST(Config, AbsentParametersMeanWhatTheFamilyHas) {
  Json json = of_family("mixtral", "MixtralForCausalLM");
  json.erase("rope_parameters");
  json["num_local_experts"] = 4;
  json["num_experts_per_tok"] = 2;
  EXPECT_EQ(parse(json).ropes.front().theta, 1e6);
  json["model_type"] = "gpt_oss";
  json["architectures"] = {"GptOssForCausalLM"};
  json["head_dim"] = 16;
  for (const bool null : {false, true}) {
    if (null) json["rope_parameters"] = nullptr;
    const RopeConfig rope = parse(json).ropes.front();
    EXPECT_EQ(rope.kind, RopeKind::yarn);
    EXPECT_EQ(rope.theta, 150000);
    EXPECT_EQ(rope.factor, 32);
    EXPECT_EQ(rope.original_max_positions, 4096);
    EXPECT_FALSE(rope.truncate);
  }
  json = of_family("ministral3", "Ministral3ForCausalLM");
  json["rope_parameters"] = nullptr;
  expect_refused(json, "rope_parameters");
}

TEST(Rope, AShareThatIsAQuotientLosesNoValue) {
  for (int64_t dim = 2; dim <= 256; dim += 2) {
    for (int64_t rotated = 2; rotated <= dim; rotated += 2) {
      RopeConfig rope;
      rope.share = static_cast<double>(rotated) / static_cast<double>(dim);
      EXPECT_EQ(rotated_values(rope, dim), rotated) << dim;
    }
  }
}

TEST(Config, DynamicRopeHasPositionsBehindThoseOfTheTraining) {
  Json json = llama();
  json["rope_parameters"] = {{"rope_type", "dynamic"}, {"factor", 4.0}};
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.max_positions, 1024);
  EXPECT_EQ(c.ropes.front().original_max_positions, 256);
}

TEST(Config, SectionsOfSeveralAxesAreOneForText) {
  Json json = llama();
  json["rope_parameters"] = {{"rope_type", "mrope"}, {"mrope_section", {2, 3, 3}}};
  EXPECT_EQ(parse(json).ropes.front(), (RopeConfig{RopeKind::standard, 10000}));
  json["rope_parameters"]["mrope_section"] = "all";
  expect_refused(json, "mrope_section");
}

TEST(Config, SectionsOfQwenAlternateBetweenAxes) {
  Json json = of_family("qwen3_vl_text", "Qwen3VLTextModel");
  json["head_dim"] = 16;
  json["rope_parameters"] = {{"rope_type", "default"}, {"mrope_section", {3, 2, 1}}};
  const RopeConfig rope = parse(json).ropes.front();
  EXPECT_EQ(rope.theta, 5e5);
  EXPECT_THAT(rope_table(rope, 16, 64).axes, ElementsAre(0, 1, 2, 0, 1, 0, 0, 0));
  json["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"mrope_section", {0, 9, 9}}};
  EXPECT_THAT(rope_table(parse(json).ropes.front(), 16, 64).axes,
              ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));
  // These are published, and the defaults.
  json.erase("rope_parameters");
  const RopeConfig absent = parse(json).ropes.front();
  json["rope_scaling"] = {
      {"rope_type", "default"}, {"mrope_interleaved", true}, {"mrope_section", {24, 20, 20}}};
  EXPECT_EQ(parse(json).ropes.front(), absent);
  for (const Json& wrong : {Json({1, 2}), Json({1, 2, 3, 4}), Json({1, -2, 3}), Json("all")}) {
    json["rope_scaling"]["mrope_section"] = wrong;
    expect_refused(json, "mrope_section");
  }
  EXPECT_TRUE(rope_table(RopeConfig(), 16, 64).axes.empty());
}

TEST(Config, LayersWithAWindowMayHaveTheirOwnRope) {
  Json json = of_family("gemma3_text", "Gemma3ForCausalLM");
  json["hidden_activation"] = "gelu_pytorch_tanh";
  json.erase("hidden_act");
  json["sliding_window_pattern"] = 2;
  json["sliding_window"] = 8;
  json["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}};
  const ModelConfig c = parse(json);
  EXPECT_THAT(c.ropes, ElementsAre(RopeConfig{RopeKind::linear, 1e6, 8},
                                   RopeConfig{RopeKind::standard, 10000}));
  EXPECT_THAT(windows(c), ElementsAre(8, 0, 8, 0));
  EXPECT_THAT(ropes(c), ElementsAre(1, 0, 1, 0));
  json.erase("rope_parameters");
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  EXPECT_EQ(parse(json).ropes, c.ropes) << "the old style with the defaults of transformers";
  json["rope_local_base_freq"] = 777.0;
  EXPECT_EQ(parse(json).ropes[1].theta, 777);
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"rope_type", "default"}};
  expect_refused(json, "one set per kind of layer");
}

}  // namespace
}  // namespace walsh
