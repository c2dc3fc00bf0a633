#include "arch/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "io/checkpoint.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;

std::string folder_of(const std::string& tiny) {
  return std::string(WALSH_TEST_DATA) + "/models/" + tiny;
}

ModelConfig config_of(const std::string& tiny) {
  const Checkpoint checkpoint = Checkpoint::open(folder_of(tiny));
  return parse_config(checkpoint.config_json(), tiny);
}

TEST(Plan, ShapesOfAllMatrices) {
  for (const char* tiny :
       {"mistral-tiny", "qwen3-moe-tiny", "qwen35-tiny", "lfm2-tiny", "granite-hybrid-tiny"}) {
    const ModelConfig config = config_of(tiny);
    const ModelPlan plan = make_plan(config);
    EXPECT_THAT(plan.shapes.at(plan.embedding), ElementsAre(config.vocab, config.hidden));
    for (const Site& site : plan.sites) {
      for (const std::string& name : site.matrices)
        EXPECT_EQ(plan.shapes.at(name)[1], site.width) << tiny << " " << name;
    }
    for (const auto& [name, expert] : plan.experts)
      EXPECT_TRUE(plan.shapes.contains(name)) << tiny << " " << name;
  }
}

TEST(Plan, SitesOfALayerInOrderOfComputation) {
  const ModelPlan plan = make_plan(config_of("mistral-tiny"));
  EXPECT_EQ(plan.embedding, "model.embed_tokens.weight");
  EXPECT_EQ(plan.head, "lm_head.weight");
  EXPECT_EQ(plan.final_norm, "model.norm.weight");
  ASSERT_EQ(plan.sites.size(), 12u);
  EXPECT_THAT(plan.sites[4].matrices, ElementsAre("model.layers.1.self_attn.q_proj.weight",
                                                  "model.layers.1.self_attn.k_proj.weight",
                                                  "model.layers.1.self_attn.v_proj.weight"));
  EXPECT_EQ(plan.sites[4].norm, "model.layers.1.input_layernorm.weight");
  EXPECT_EQ(plan.sites[5].norm, "");
  EXPECT_THAT(plan.sites[6].matrices, ElementsAre("model.layers.1.mlp.gate_proj.weight",
                                                  "model.layers.1.mlp.up_proj.weight"));
  EXPECT_EQ(plan.sites[7].width, 112);
}

TEST(Plan, TiedHeadIsEmptyAndItsCopyIgnored) {
  const ModelPlan plan = make_plan(config_of("qwen3-tiny"));
  EXPECT_EQ(plan.head, "");
  EXPECT_THAT(plan.ignored, testing::Contains("lm_head.weight"));
  EXPECT_THAT(plan.vectors, IsSupersetOf({"model.layers.0.self_attn.q_norm.weight",
                                          "model.layers.1.self_attn.k_norm.weight"}));
}

// Every tensor of every tiny checkpoint is named once by the plan, and the plan names no others.
TEST(Plan, CoversExactlyTheTensorsOfRealCheckpoints) {
  for (const char* name : {"qwen2-tiny", "qwen2-window-tiny", "mistral-tiny", "llama31-tiny",
                           "llama2-bias-tiny", "qwen3-tiny"}) {
    const ModelPlan plan = make_plan(config_of(name));
    std::multiset<std::string> planned(plan.vectors.begin(), plan.vectors.end());
    planned.insert(plan.embedding);
    if (!plan.head.empty()) planned.insert(plan.head);
    for (const Site& site : plan.sites)
      planned.insert(site.matrices.begin(), site.matrices.end());
    const Checkpoint checkpoint = Checkpoint::open(folder_of(name));
    std::multiset<std::string> present;
    for (const TensorInfo& info : checkpoint.tensors())
      present.insert(info.name);
    EXPECT_EQ(planned, present) << name;
    EXPECT_EQ(model_tensors(config_of(name)).size(), present.size()) << name;
  }
}

TEST(Plan, NormsBehindBlocksDoNotLetAFoldedRotationThrough) {
  ModelConfig config = config_of("qwen3-tiny");
  EXPECT_EQ(make_plan(config).residual.refusal, "");
  config.layers[1].after_mlp = {"norm", config.hidden, 1e-5f, 0};
  EXPECT_NE(make_plan(config).residual.refusal.find("norms after"), std::string::npos);
}

}  // namespace
}  // namespace walsh
