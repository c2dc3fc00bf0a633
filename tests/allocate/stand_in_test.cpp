#include "allocate/stand_in.h"

#include <gtest/gtest.h>

#include "allocate/candidates.h"
#include "allocate/tiny_model.h"
#include "calibrate/layer_statistics.h"
#include "threads.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using test::formats;
using test::recipe_of;

class StandInTest : public testing::Test {
 protected:
  using Open = std::function<std::unique_ptr<Compressor>(Recipe)>;

  Open opener() {
    return [this](const Recipe& recipe) { return open_compressor(model_.path(), recipe, pool_); };
  }
  static Recipe rotated(RotateAt place) {
    Recipe recipe = recipe_of("tq3");
    recipe.rotate = place;
    return recipe;
  }
  // Returns the squared error of a matrix relative to that in plain().
  static double error(StandIn& stand_in, WeightSource& plain, const std::string& name,
                      double nmse) {
    const Tensor original = plain.load(name);
    const Tensor erring = stand_in.erring(name, original, nmse);
    std::vector<float> a(static_cast<size_t>(original.rows * original.cols)), b(a.size());
    decode_rows(original, 0, original.rows, a.data());
    decode_rows(erring, 0, original.rows, b.data());
    double error = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      error += (a[i] - b[i]) * (a[i] - b[i]);
      norm += a[i] * a[i];
    }
    return error / norm;
  }
  void expect_errors(const Open& open, RotateAt place, double most) {
    StandIn stand_in(open(rotated(place)), pool_);
    const auto plain = stand_in.plain();
    const auto matrices = open(rotated(place));
    for (const TensorPlan& plan : matrices->tensors()) {
      if (!plan.linear) continue;
      for (const double nmse : {0.07, 0.001}) {
        const double found = error(stand_in, *plain, plan.name, nmse);
        EXPECT_GT(found, nmse / 2) << plan.name << rotate_at_name(place);
        EXPECT_LT(found, nmse * most) << plan.name << rotate_at_name(place);
      }
    }
    EXPECT_GT(stand_in.bytes(), 0u);
  }

  ThreadPool pool_{test::kThreads};
  test::TinyModel model_;
};

TEST_F(StandInTest, ErrsByTheSizeThatIsAskedForInTheBasisOfThePlainModel) {
  for (const RotateAt place : {RotateAt::input, RotateAt::residual, RotateAt::both})
    expect_errors(opener(), place, 1.5);
}

TEST_F(StandInTest, CalibratedBalancingIsUndoneOnBothSides) {
  Random random(1);
  std::vector<std::vector<int32_t>> windows(8, std::vector<int32_t>(64));
  for (auto& window : windows)
    for (int32_t& token : window)
      token = static_cast<int32_t>(random.below(150));
  for (const RotateAt place : {RotateAt::input, RotateAt::residual}) {
    std::optional<Rotation> fold;
    if (place == RotateAt::residual) fold = fold_rotation(rotated(place));
    const std::function<void()> check;
    const auto statistics =
        std::make_shared<LayerStatistics>(model_.path(), windows, pool_, check, fold);
    const auto open = [&](Recipe recipe) {
      recipe.calibration = CalibrationText{"0", 512, 64};
      auto compressor = open_compressor(model_.path(), recipe, pool_);
      compressor->calibrate(statistics);
      return compressor;
    };
    expect_errors(open, place, 4);  // error feedback makes the weights err more
  }
}

TEST_F(StandInTest, OneThatIsRotatedStandsForAllThatAre) {
  EXPECT_EQ(stand_in_for(formats({"tc2", "tq4+4"})).name, "tq3");
  EXPECT_EQ(stand_in_for(formats({"q8_0", "q4_0"})).name, "q4_0");
}

TEST_F(StandInTest, TheWideModelHasTheSameWeightsAsF32) {
  for (const RotateAt place : {RotateAt::input, RotateAt::residual}) {
    const StandIn stand_in(opener()(rotated(place)), pool_);
    const auto plain = stand_in.plain(), wide = stand_in.plain(true);
    const auto matrices = opener()(rotated(place));
    for (const TensorPlan& plan : matrices->tensors()) {
      const Tensor a = plain->load(plan.name), b = wide->load(plan.name);
      if (plan.linear) {
        EXPECT_EQ(b.format->name, "f32") << plan.name;
      }
      ASSERT_EQ(a.rows * a.cols, b.rows * b.cols) << plan.name;
      std::vector<float> x(static_cast<size_t>(a.rows * a.cols)), y(x.size());
      decode_rows(a, 0, a.rows, x.data());
      decode_rows(b, 0, b.rows, y.data());
      EXPECT_EQ(x, y) << plan.name << rotate_at_name(place);
    }
  }
}

}  // namespace
}  // namespace walsh
