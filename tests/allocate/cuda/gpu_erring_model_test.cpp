// Divergences measured on a GPU against those of the CPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "allocate/erring_model.h"
#include "allocate/tiny_model.h"
#include "model/cuda/gpu_models.h"

namespace walsh {
namespace {

using test::formats;
using test::recipe_of;

constexpr int64_t kWindow = 24;
// Attention of a GPU rounds to 16 bits what the CPU does not.
constexpr double kNear = 0.02;

class GpuErringModel : public test::GpuTest {
 protected:
  struct Erring {
    Candidates candidates;
    StandIn stand_in;
    ErringModel model;
    std::unique_ptr<ErringModel::Text> text;

    Erring(const OpenCompressor& open, const Recipe& recipe, const LoadOptions& load)
        : candidates(open, recipe, formats({"tq3", "tq4"}), true),
          stand_in(open(candidates.stand_in_recipe()), *load.pool),
          model(candidates.tensors(), stand_in, load),
          text(model.text(windows(), {})) {}
  };

  static std::vector<std::vector<int32_t>> windows() {
    const std::vector<int32_t> tokens = test::TinyModel::text(3 * kWindow);
    std::vector<std::vector<int32_t>> windows;
    for (auto at = tokens.begin(); at != tokens.end(); at += kWindow)
      windows.emplace_back(at, at + kWindow);
    return windows;
  }

  std::unique_ptr<Erring> open(const std::string& name, bool on_gpu, const Recipe& recipe) {
    LoadOptions load;
    load.pool = &pool_;
    if (on_gpu) load.device = gpu_;
    load.use.max_positions = kWindow;
    load.use.sequences = 2;  // more than one batch
    const auto compressor = [&](const Recipe& wanted) {
      return open_compressor(test::tiny_model(name), wanted, pool_);
    };
    return std::make_unique<Erring>(compressor, recipe, load);
  }

  void expect_those_of_the_cpu(const std::string& name, const Recipe& recipe = recipe_of("tq3")) {
    SCOPED_TRACE(name);
    const auto gpu = open(name, true, recipe), cpu = open(name, false, recipe);
    ASSERT_EQ(gpu->model.note(), "");
    ASSERT_TRUE(gpu->model.model().device.cuda);
    const size_t tensors = gpu->candidates.tensors().size();
    const std::vector<double> none(tensors), all(tensors, 0.03), levels = {0.01, 0.05};
    EXPECT_EQ(gpu->model.divergence(*gpu->text, none).value, 0);
    const double whole = gpu->model.divergence(*gpu->text, all).value;
    EXPECT_NEAR(whole, cpu->model.divergence(*cpu->text, all).value, kNear * whole);
    const auto alone = gpu->model.alone(*gpu->text, levels, {});
    const auto expected = cpu->model.alone(*cpu->text, levels, {});
    for (size_t t = 0; t < tensors; ++t)
      for (size_t i = 0; i < levels.size(); ++i)
        EXPECT_NEAR(alone[t][i], expected[t][i], kNear * expected[t][i] + 1e-4 * whole)
            << gpu->candidates.tensors()[t].name;
    EXPECT_EQ(gpu->model.divergence(*gpu->text, none).value, 0) << "what erred is exact again";
    EXPECT_EQ(gpu->model.divergence(*gpu->text, all).value, whole);
  }
};

TEST_F(GpuErringModel, DivergesAsOnTheCpu) {
  for (const char* name : {"llama31-tiny", "qwen35-tiny", "gemma3-tiny", "qwen3-moe-tiny"})
    expect_those_of_the_cpu(name);
}

TEST_F(GpuErringModel, WithLatentAttentionDivergesAsOnTheCpu) {
  expect_those_of_the_cpu("deepseek-v2-tiny");
}

TEST_F(GpuErringModel, WithAFoldDivergesAsOnTheCpu) {
  Recipe folded = recipe_of("tq3");
  folded.rotate = RotateAt::residual;
  expect_those_of_the_cpu("qwen2-tiny", folded);
}

TEST_F(GpuErringModel, IsOnTheCpuWhereLayersShareKeysAndANoteSaysSo) {
  const auto erring = open("gemma4-tiny", true, recipe_of("tq3"));
  EXPECT_FALSE(erring->model.model().device.cuda);
  EXPECT_NE(erring->model.note().find("share keys and values"), std::string::npos);
}

}  // namespace
}  // namespace walsh
