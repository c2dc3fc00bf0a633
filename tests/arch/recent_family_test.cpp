// How families of 2025 read config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config_support.h"

namespace walsh {
namespace {

using namespace test;

TEST(Families, SeedOssHasBiasesOfQueriesKeysAndValues) {
  Json json = of_family("seed_oss", "SeedOssForCausalLM");
  json["residual_dropout"] = 0.1;
  const ModelConfig c = parse(json);
  const AttentionDesc& a = c.layers.front().attention;
  EXPECT_TRUE(has_bias(c, a.q) && has_bias(c, a.k) && has_bias(c, a.v));
  EXPECT_FALSE(has_bias(c, a.o) || has_bias(c, c.layers.front().mlp.down));
  EXPECT_EQ(a.head_dim, 128) << "the default of transformers";
  json["head_dim"] = nullptr;
  json["attention_out_bias"] = json["mlp_bias"] = true;
  json["attention_bias"] = false;
  const ModelConfig other = parse(json);
  EXPECT_EQ(other.layers.front().attention.head_dim, 16) << "hidden / heads";
  EXPECT_FALSE(has_bias(other, a.q));
  EXPECT_TRUE(has_bias(other, a.o) && has_bias(other, c.layers.front().mlp.down));
  json["attention_sinks"] = true;
  expect_refused(json, "attention_sinks");
}

}  // namespace
}  // namespace walsh
