#include "allocate/sensitivity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "allocate/stand_in.h"
#include "allocate/tiny_model.h"
#include "threads.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using test::formats;
using test::recipe_of;

class SensitivityTest : public testing::Test {
 protected:
  Sensitivity measure(ThreadPool& pool) {
    const Candidates candidates(model_.opener(pool), recipe_of("tq2"),
                                formats({"tq2", "tq3", "tq4"}), false);
    names_.clear();
    for (const CandidateTensor& tensor : candidates.tensors())
      names_.push_back(tensor.name);
    StandIn stand_in(model_.opener(pool)(candidates.stand_in_recipe()), pool);
    LoadOptions load;
    load.pool = &pool;
    ErringModel model(candidates.tensors(), stand_in, load);
    const std::vector<int32_t> tokens = test::TinyModel::text(128);
    std::vector<std::vector<int32_t>> windows;
    for (auto at = tokens.begin(); at != tokens.end(); at += 32)
      windows.emplace_back(at, at + 32);
    const auto text = model.text(std::move(windows), {});
    return measure_sensitivity(candidates, model, *text);
  }
  double damage(const Sensitivity& s, const std::string& part) const {
    for (size_t t = 0; t < names_.size(); ++t)
      if (names_[t].find(part) != std::string::npos) return s.damage[t][0];
    ADD_FAILURE() << "no tensor " << part;
    return 0;
  }

  ThreadPool pool_{test::kThreads};
  test::TinyModel model_;
  std::vector<std::string> names_;
};

TEST_F(SensitivityTest, ATensorWhoseOutputIsThrownAwayDoesNoDamage) {
  model_.scale("model.layers.1.mlp.down_proj.weight", 0);
  const Sensitivity s = measure(pool_);
  ASSERT_EQ(s.damage.size(), names_.size());
  EXPECT_LT(damage(s, "layers.1.mlp.up_proj"), 1e-9);
  EXPECT_LT(damage(s, "layers.1.mlp.gate_proj"), 1e-9);
  for (const char* used :
       {"layers.0.mlp.up_proj", "layers.0.mlp.down_proj", "layers.1.self_attn.v"})
    EXPECT_GT(damage(s, used), 1e-7) << used;
}

TEST_F(SensitivityTest, ATensorThatCarriesLessMattersLess) {
  const Sensitivity before = measure(pool_);
  model_.scale("model.layers.0.mlp.down_proj.weight", 0.25f);
  const Sensitivity after = measure(pool_);
  EXPECT_LT(damage(after, "layers.0.mlp.down_proj"), damage(before, "layers.0.mlp.down_proj") / 3);
}

TEST_F(SensitivityTest, WiderFormatsDoLessDamage) {
  const Sensitivity s = measure(pool_);
  for (size_t t = 0; t < names_.size(); ++t) {
    EXPECT_GT(s.damage[t][0], s.damage[t][1]) << names_[t];
    EXPECT_GT(s.damage[t][1], s.damage[t][2]) << names_[t];
    EXPECT_GT(s.curves[t].alpha(), 0) << names_[t];
  }
}

TEST_F(SensitivityTest, TheNumberOfThreadsChangesNothing) {
  ThreadPool three(3);
  EXPECT_EQ(measure(pool_).damage, measure(three).damage);
}

TEST(MeasuredErrors, LeaveOutWhatDoesTooLittleDamage) {
  const auto errors = measured_errors(formats({"tq4", "tq4+4", "tq2", "tq3"}));
  EXPECT_EQ(errors, (std::vector<double>{get_format("tq4").bound, get_format("tq2").bound}));
  EXPECT_EQ(measured_errors(formats({"tq4+4"})).size(), 1u);
}

TEST(DamageCurve, GoesThroughItsPoints) {
  const DamageCurve worse{{0.01, 0.1}, {0.02, 0.5}, 2}, better{{0.01, 0.1}, {0.02, 0.1}, 2};
  for (const DamageCurve& curve : {worse, better}) {
    EXPECT_NEAR(curve.at(0.01), curve.damage[0], 1e-12);
    EXPECT_NEAR(curve.at(0.1), curve.damage[1], 1e-12);
    EXPECT_LT(curve.at(0.001), curve.at(0.002));
    EXPECT_GT(curve.alpha(), 0);
  }
  EXPECT_NEAR(worse.excess(), 2.5, 1e-12);
  EXPECT_NEAR(worse.at(1e-6) / 1e-6, worse.alpha(), 1e-4);
  const DamageCurve line{{0.01, 0}, {0.02, 0}, 1};
  EXPECT_NEAR(line.at(0.05), 0.1, 1e-12);
  EXPECT_NEAR(line.alpha(), 2, 1e-12);
}

TEST(DamageCurve, RisesEvenWhereMeasuringWasNoisy) {
  const DamageCurve noise{{0.01, 0.1}, {1e-12, 0.5}, 2};
  EXPECT_GT(noise.alpha(), 0);
  EXPECT_LT(noise.at(0.01), noise.at(0.05));
}

TEST(DamageCurve, StaysFiniteFarFromItsPoints) {
  const DamageCurve steep{{0.0265, 0.0266}, {kLeastDamage, 0.5}, 2};
  EXPECT_EQ(steep.at(0.12), kMostDamage) << "a power of 6000 and more";
  const DamageCurve broken{{1e-9, 2e-9}, {1, kMostDamage}, 2};
  EXPECT_EQ(broken.at(0.12), kMostDamage);
  EXPECT_GT(broken.at(1e-12), 0);
}

}  // namespace
}  // namespace walsh
