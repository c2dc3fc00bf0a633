#include "allocate/sensitivity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "allocate/noise.h"
#include "allocate/tiny_model.h"
#include "threads.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using test::formats;
using test::recipe_of;

class SensitivityTest : public testing::Test {
 protected:
  Sensitivity measure(Probe probe, ThreadPool& pool, const char* narrow = "tq2") {
    Candidates candidates(model_.opener(pool), recipe_of("tq2"), formats({narrow, "tq3", "tq4"}),
                          false, pool);
    names_.clear();
    for (const CandidateTensor& tensor : candidates.tensors())
      names_.push_back(tensor.name);
    const auto plain = candidates.plain();
    LoadOptions load;
    load.pool = &pool;
    const ModelConfig config = parse_config(plain->config_json(), "config.json");
    const ReferenceText text(Model::load(*plain, config, load), test::TinyModel::text(128), cut_);
    return measure_sensitivity(candidates, *plain, text, probe, load);
  }
  double damage(const Sensitivity& s, const std::string& part, size_t candidate = 0) const {
    for (size_t t = 0; t < names_.size(); ++t)
      if (names_[t].find(part) != std::string::npos) return s.damage[t][candidate];
    ADD_FAILURE() << "no tensor " << part;
    return 0;
  }

  ThreadPool pool_{test::kThreads};
  test::TinyModel model_;
  std::vector<std::string> names_;
  ReferenceTextOptions cut_{.ctx = 32, .windows = 4};
};

TEST_F(SensitivityTest, ATensorWhoseOutputIsThrownAwayDoesNoDamage) {
  model_.scale("model.layers.1.mlp.down_proj.weight", 0);
  for (const Probe probe : {Probe::encode, Probe::noise}) {
    const Sensitivity s = measure(probe, pool_);
    ASSERT_EQ(s.damage.size(), names_.size());
    const double unused = damage(s, "layers.1.mlp.up_proj");
    EXPECT_LT(unused, 1e-9) << probe_name(probe);
    EXPECT_LT(damage(s, "layers.1.mlp.gate_proj"), 1e-9) << probe_name(probe);
    for (const char* used :
         {"layers.0.mlp.up_proj", "layers.0.mlp.down_proj", "layers.1.self_attn.v"})
      EXPECT_GT(damage(s, used), 1e-7) << used << " " << probe_name(probe);
  }
}

TEST_F(SensitivityTest, ATensorThatCarriesLessMattersLess) {
  const Sensitivity before = measure(Probe::noise, pool_);
  model_.scale("model.layers.0.mlp.down_proj.weight", 0.25f);
  const Sensitivity after = measure(Probe::noise, pool_);
  EXPECT_LT(damage(after, "layers.0.mlp.down_proj"), damage(before, "layers.0.mlp.down_proj") / 3);
}

TEST_F(SensitivityTest, WiderFormatsDoLessDamage) {
  const Sensitivity s = measure(Probe::encode, pool_);
  for (size_t t = 0; t < names_.size(); ++t) {
    EXPECT_GT(s.damage[t][0], s.damage[t][1]) << names_[t];
    EXPECT_GT(s.damage[t][1], s.damage[t][2]) << names_[t];
    EXPECT_GT(s.curves[t].alpha(), 0) << names_[t];
  }
}

TEST_F(SensitivityTest, NoiseRanksTensorsAsRealErrorsDo) {
  const Sensitivity real = measure(Probe::encode, pool_), noise = measure(Probe::noise, pool_);
  double xy = 0, xx = 0, yy = 0, x = 0, y = 0;
  const auto n = static_cast<double>(names_.size());
  for (size_t t = 0; t < names_.size(); ++t) {
    const double a = std::log(real.damage[t][0]), b = std::log(noise.damage[t][0]);
    x += a / n, y += b / n, xx += a * a / n, yy += b * b / n, xy += a * b / n;
  }
  EXPECT_GT((xy - x * y) / std::sqrt((xx - x * x) * (yy - y * y)), 0.8);
}

TEST_F(SensitivityTest, TheNumberOfThreadsChangesNothing) {
  ThreadPool three(3);
  cut_.windows = 1;
  for (const Probe probe : {Probe::encode, Probe::noise})
    EXPECT_EQ(measure(probe, pool_).damage, measure(probe, three).damage) << probe_name(probe);
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

TEST(RoundingNoise, HasTheErrorAndTheShrinkingOfALeastSquaresCode) {
  constexpr int64_t kRows = 64, kCols = 256;
  constexpr double kNmse = 0.1;
  ThreadPool pool(test::kThreads);
  Random random(9);
  std::vector<float> w(kRows * kCols), scales(kCols);
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = static_cast<float>(random.normal() * (1 + static_cast<double>(i / kCols % 7)));
  for (float& s : scales)
    s = static_cast<float>(0.5 + random.uniform());
  Tensor tensor;
  tensor.format = &dense_format(DType::f32);
  tensor.rows = kRows;
  tensor.cols = kCols;
  tensor.data = std::as_bytes(std::span<const float>(w));
  const Tensor noisy = with_rounding_noise(tensor, scales, 128, kNmse, 1, pool);
  std::vector<float> v(w.size());
  decode_rows(noisy, 0, kRows, v.data());
  double error = 0, norm = 0, kept = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    const double s = scales[i % kCols], a = s * w[i], b = s * v[i];
    error += (a - b) * (a - b), norm += a * a, kept += b * b;
  }
  EXPECT_NEAR(error / norm, kNmse, 0.01);
  EXPECT_NEAR(kept / norm, 1 - kNmse, 0.02);
}

TEST(Probe, HasTwoNames) {
  EXPECT_EQ(parse_probe("encode"), Probe::encode);
  EXPECT_EQ(parse_probe("noise"), Probe::noise);
  EXPECT_THROW(parse_probe("gradient"), Error);
}

}  // namespace
}  // namespace walsh
