#include "model/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "model_support.h"

namespace walsh {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;

ModelConfig config_of(const std::string& tiny) {
  const std::string path = test::tiny_model(tiny) + "/config.json";
  return parse_config(test::read_file(path), path);
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
    const Checkpoint checkpoint = Checkpoint::open(test::tiny_model(name));
    std::multiset<std::string> present;
    for (const TensorInfo& info : checkpoint.tensors())
      present.insert(info.name);
    EXPECT_EQ(planned, present) << name;
    EXPECT_EQ(model_tensors(config_of(name)).size(), present.size()) << name;
  }
}

TEST(Plan, UnknownFamilyIsRefused) {
  ModelConfig config = config_of("qwen2-tiny");
  config.family = "gemma";
  EXPECT_THROW(make_plan(config), Error);
}

}  // namespace
}  // namespace walsh
