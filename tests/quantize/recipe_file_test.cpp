#include "quantize/recipe/recipe_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "walsh/error.h"

namespace walsh {
namespace {

constexpr const char* kComplete = R"({
  "walsh_recipe": 1, "type": "tc3:h", "embed_type": "q8_0", "head_type": "source",
  "rules": [{"tensor": "re:v_proj", "type": "tc4:h"},
            {"tensor": "model.layers.0.mlp.down_proj.weight", "type": "source"}],
  "rotation": "qr", "rotate": "both", "block": 64, "signs": false, "seed": 7, "balance": false,
  "effort": "fast", "scale": "shape-gain", "about": {"anything": [1, 2]}})";

void expect_refused(const std::string& text, const std::string& reason) {
  try {
    parse_recipe(text, "mix.json");
    FAIL() << "accepted: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input) << e.what();
    EXPECT_THAT(e.where(), testing::StartsWith("mix.json")) << text;
    EXPECT_THAT(e.what(), testing::HasSubstr(reason)) << text;
  }
}

std::string with(const std::string& more) {
  return R"({"walsh_recipe": 1, "type": "tc3:h")" + more + "}";
}

TEST(RecipeFile, ReadsEveryKey) {
  const Recipe r = parse_recipe(kComplete, "mix.json");
  EXPECT_EQ(r.type->name, "tc3:h");
  EXPECT_EQ(r.embed_type->name, "q8_0");
  EXPECT_EQ(r.head_type, nullptr);
  ASSERT_EQ(r.rules.size(), 2u);
  EXPECT_EQ(r.rules[0].format->name, "tc4:h");
  StepBudget steps(kRuleSteps);
  EXPECT_TRUE(r.rules[0].matches("model.layers.3.self_attn.v_proj.weight", steps));
  EXPECT_EQ(r.rules[1].format, nullptr);
  EXPECT_FALSE(r.rules[1].matches("model.layers.1.mlp.down_proj.weight", steps));
  EXPECT_EQ(r.rotation, RotationKind::qr);
  EXPECT_EQ(r.rotate, RotateAt::both);
  EXPECT_EQ(r.block, 64);
  EXPECT_FALSE(r.signs);
  EXPECT_EQ(r.seed, 7u);
  EXPECT_FALSE(r.balance);
  EXPECT_EQ(r.encode.effort, Effort::fast);
  EXPECT_EQ(r.encode.scale_rule, ScaleRule::shape_gain);
}

// A recipe is kept as JSON, which has no other strings.
TEST(RecipePattern, IsUtf8) {
  for (const std::string pattern : {"re:(down|\xff)", "q\xC3", "re:\x80"}) {
    for (const char* flag : {"--ignore", "--override"}) {
      try {
        const bool ignore = flag == std::string("--ignore");
        ignore ? parse_ignore(pattern) : parse_override(pattern + "=tq3");
        FAIL() << "accepted";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::usage);
        EXPECT_EQ(e.where(), flag);
        EXPECT_THAT(e.reason(), testing::HasSubstr("not valid UTF-8"));
      }
    }
  }
  Recipe recipe = parse_recipe(with(""), "mix.json");
  recipe.rules = {parse_ignore("re:\xC3\xA9|\x7f")};
  EXPECT_THAT(recipe_json(recipe), testing::HasSubstr("\xC3\xA9|"));
}

TEST(RecipeFile, WhatIsLeftOutHasItsDefault) {
  Recipe plain;
  plain.type = &get_format("tc3:h");
  EXPECT_EQ(recipe_json(parse_recipe(with(""), "mix.json")), recipe_json(plain));
}

TEST(RecipeFile, ComesBackAsItWasWritten) {
  const Recipe r = parse_recipe(kComplete, "mix.json");
  const std::string text = format_recipe(r, {{"why", "test"}});
  EXPECT_EQ(recipe_json(parse_recipe(text, "again.json")), recipe_json(r));
  EXPECT_THAT(text, testing::HasSubstr("\"why\": \"test\""));
}

TEST(RecipeFile, CalibrationIsNoPartOfIt) {
  Recipe r = parse_recipe(with(""), "mix.json");
  r.calibration = CalibrationText{"00", 1024, 512};
  EXPECT_FALSE(parse_recipe(format_recipe(r), "mix.json").calibration.has_value());
}

TEST(RecipeFile, RefusesWhatIsNoRecipe) {
  expect_refused("", "1");
  expect_refused("[1]", "an array");
  expect_refused("{", "line 1");
  expect_refused(R"({"type": "tc3:h"})", "walsh_recipe");
  expect_refused(R"({"walsh_recipe": 2, "type": "tc3:h"})", "version 2");
  expect_refused(R"({"walsh_recipe": "1", "type": "tc3:h"})", "the string");
  expect_refused(R"({"walsh_recipe": 1})", "type");
  expect_refused(with(R"(, "type": "tc4:h")"), "type");
  expect_refused(std::string(kMaxRecipeBytes + 1, ' '), "bytes");
}

TEST(RecipeFile, RefusesWrongValues) {
  expect_refused(R"({"walsh_recipe": 1, "type": "tc9"})", "tc9");
  expect_refused(R"({"walsh_recipe": 1, "type": "source"})", "source");
  expect_refused(R"({"walsh_recipe": 1, "type": 3})", "type");
  expect_refused(with(R"(, "tpye": 1)"), "unknown key 'tpye'");
  expect_refused(with(R"(, "embed_type": "tc")"), "'tc'");
  expect_refused(with(R"(, "block": 48)"), "48");
  expect_refused(with(R"(, "block": 1e99)"), "block");
  expect_refused(with(R"(, "block": -1)"), "block");
  expect_refused(with(R"(, "seed": 4294967296)"), "seed");
  expect_refused(with(R"(, "signs": 1)"), "signs");
  expect_refused(with(R"(, "effort": "slow")"), "slow");
  expect_refused(with(R"(, "scale": "none")"), "none");
  expect_refused(with(R"(, "rotation": "left")"), "left");
  expect_refused(with(R"(, "rotate": "left")"), "left");
  expect_refused(with(R"(, "rotation": "none", "rotate": "residual")"), "cannot be combined");
}

TEST(RecipeFile, RefusesWrongRules) {
  const auto rule = [](const std::string& text) { return with(", \"rules\": [" + text + "]"); };
  expect_refused(with(R"(, "rules": {})"), "rules");
  expect_refused(rule("3"), "rules[0]");
  expect_refused(rule(R"({"tensor": "a"})"), "type");
  expect_refused(rule(R"({"type": "tc3:h"})"), "tensor");
  expect_refused(rule(R"({"tensor": "a", "type": "tc3:h", "bits": 3})"), "bits");
  expect_refused(rule(R"({"tensor": "", "type": "tc3:h"})"), "empty");
  expect_refused(rule(R"({"tensor": "re:(", "type": "tc3:h"})"), "regular expression");
  expect_refused(rule(R"({"tensor": "a", "type": "tc3:h"}, {"tensor": "a", "type": "tc4:h"})"),
                 "rules[1]");
  expect_refused(rule(R"({"tensor": "re:)" + std::string(2000, '(') + R"(", "type": "tc3:h"})"),
                 "2003 characters");
}

TEST(TensorRule, APatternIsSearchedAndANameIsExact) {
  StepBudget steps(kRuleSteps);
  const TensorRule pattern = parse_ignore("re:layers\\.(0|31)\\..*proj");
  EXPECT_TRUE(pattern.matches("model.layers.31.mlp.up_proj.weight", steps));
  EXPECT_FALSE(pattern.matches("model.layers.1.mlp.up_proj.weight", steps));
  const TensorRule name = parse_ignore("lm_head");
  EXPECT_TRUE(name.matches("lm_head", steps));
  EXPECT_TRUE(name.matches("lm_head.weight", steps));
  EXPECT_FALSE(name.matches("lm_head.bias", steps));
  EXPECT_FALSE(name.matches("lm_heads.weight", steps));
  EXPECT_FALSE(name.matches("x.lm_head.weight", steps));
}

TEST(TensorRule, HostilePatternsEndAtTheBudgetOfTheRecipe) {
  for (const char* pattern :
       {"re:(.*)*(.*)*(.*)*x", "re:(\\w|[a-z_]|\\.)*\\d\\d$", "re:(.+)+(.+)+(.+)+Q"}) {
    const TensorRule rule = parse_ignore(pattern);
    StepBudget steps(1'000'000);
    try {
      rule.matches("model.layers.3.self_attn.v_proj.weight", steps);
      FAIL() << pattern << " took " << steps.spent();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::limit);
      EXPECT_THAT(e.where(), testing::HasSubstr(pattern));
    }
    EXPECT_LT(steps.spent(), 1'100'000u);
  }
}

TEST(TensorRule, AThousandRulesOnThousandsOfNamesAreWellWithinTheBudget) {
  StepBudget steps(kRuleSteps);
  std::vector<TensorRule> rules;
  for (int i = 0; i < 100; ++i)
    rules.push_back(parse_ignore("re:^model\\.layers\\." + std::to_string(i) + "\\..*(q|k)_proj"));
  for (int layer = 0; layer < 100; ++layer) {
    for (const TensorRule& rule : rules)
      rule.matches("model.layers." + std::to_string(layer) + ".self_attn.o_proj.weight", steps);
  }
  EXPECT_LT(steps.spent(), kRuleSteps / 100);  // ten thousand of a million pairs
}

}  // namespace
}  // namespace walsh
