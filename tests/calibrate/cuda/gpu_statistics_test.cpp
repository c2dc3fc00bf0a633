// Tests statistics measured on a GPU against those of the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "calibrate/layer_statistics.h"
#include "model/cuda/gpu_models.h"
#include "walsh/error.h"
#include "weights/open.h"

namespace walsh {
namespace {

using Windows = std::vector<std::vector<int32_t>>;

// Rounding both values of a product to bf16 changes a moment by at most so much of the product of
// both root mean squares.
constexpr double kRounded = 1.0 / 256;
// Behind the first products the activations differ themselves: a GPU rounds them to the type of
// the weights, bf16, and a few hundred tokens hardly average that away in the worst of all moments.
constexpr double kBehindProducts = 5e-2;

class GpuStatistics : public test::GpuTest {
 protected:
  static Windows windows(const std::string& name, int64_t count, int64_t length) {
    CheckpointSource source = CheckpointSource::open(test::tiny_model(name));
    const auto vocab = static_cast<uint64_t>(read_config(source).vocab);
    Random random(21);
    Windows windows(static_cast<size_t>(count));
    for (auto& window : windows)
      for (int64_t i = 0; i < length; ++i)
        window.push_back(static_cast<int32_t>(random.below(vocab)));
    return windows;
  }
  static ModelConfig config(const std::string& name) {
    CheckpointSource source = CheckpointSource::open(test::tiny_model(name));
    return read_config(source);
  }
  LayerStatistics measure(const std::string& name, const Windows& windows, bool on_gpu,
                          const std::optional<Rotation>& fold = {}) {
    return {test::tiny_model(name), windows, pool_, {}, fold, on_gpu ? gpu_ : Device{}};
  }

  // Returns the largest difference of two moments, relative to the root mean squares of both
  // columns.
  static double difference(const InputMoments& a, const InputMoments& b) {
    EXPECT_EQ(a.width, b.width);
    EXPECT_EQ(a.tokens, b.tokens);
    if (a.width != b.width || a.tokens == 0) return 0;
    double worst = 0;
    const std::vector<double> rms = b.rms();
    for (int64_t i = 0; i < b.width; ++i) {
      for (int64_t j = i; j < b.width; ++j) {
        const auto at = static_cast<size_t>(i * b.width + j);
        const double size = rms[static_cast<size_t>(i)] * rms[static_cast<size_t>(j)] *
                            static_cast<double>(b.tokens);
        const double apart = std::fabs(double{a.sums[at]} - double{b.sums[at]});
        if (size > 0) worst = std::max(worst, apart / size);
      }
    }
    return worst;
  }
  static int sites(const ModelConfig& config) {
    int count = 1;  // that of the head
    for (const LayerDesc& layer : config.layers)
      count += static_cast<int>(layer.activations.size());
    return count;
  }
  void expect_those_of_the_cpu(const std::string& name, const Windows& windows,
                               const std::optional<Rotation>& fold = {}) {
    SCOPED_TRACE(name);
    LayerStatistics gpu = measure(name, windows, true, fold);
    LayerStatistics cpu = measure(name, windows, false, fold);
    ASSERT_EQ(gpu.note(), "");
    const double first = difference(gpu.moments(0), cpu.moments(0));
    EXPECT_LE(first, kRounded * 1.01);
    double worst = 0;
    for (int site = 1; site < sites(config(name)); ++site)
      worst = std::max(worst, difference(gpu.moments(site), cpu.moments(site)));
    EXPECT_LE(worst, kBehindProducts);
  }
};

TEST_F(GpuStatistics, AreThoseOfTheCpu) {
  for (const char* name :
       {"qwen2-tiny", "qwen3-tiny", "mistral-tiny", "llama2-bias-tiny", "olmo2-tiny", "glm4-tiny",
        "granite-tiny", "gemma2-tiny", "cohere2-tiny", "arcee-tiny", "hunyuan-tiny"})
    expect_those_of_the_cpu(name, windows(name, 5, 40));
}

TEST_F(GpuStatistics, OfRecurrentLayersAreThoseOfTheCpu) {
  for (const char* name : {"qwen35-tiny", "lfm2-tiny", "granite-hybrid-dense-tiny"})
    expect_those_of_the_cpu(name, windows(name, 5, 70));
}

TEST_F(GpuStatistics, OfLatentAttentionAreThoseOfTheCpu) {
  expect_those_of_the_cpu("deepseek-v2-tiny", windows("deepseek-v2-tiny", 5, 40));
}

TEST_F(GpuStatistics, WithAFoldAreThoseOfTheCpu) {
  const Rotation fold{RotationKind::hadamard, 1024, 42, true};
  expect_those_of_the_cpu("qwen2-tiny", windows("qwen2-tiny", 3, 40), fold);
}

// There are more windows than one batch has room for.
TEST_F(GpuStatistics, OfSeveralBatchesAreThoseOfTheCpu) {
  expect_those_of_the_cpu("qwen3-tiny", windows("qwen3-tiny", 50, 100));
}

// Calls see(site, expert) for what gate and down of all experts read, by layers.
template <typename See>
void each_expert(const ModelConfig& config, const See& see) {
  int first = 0;
  for (const LayerDesc& layer : config.layers) {
    for (int i = 0; i < layer.experts.count; ++i)
      for (const int matrix : {layer.experts.gate(i), layer.experts.down(i)})
        see(first + layer.matrix(matrix).input, i);
    first += static_cast<int>(layer.activations.size());
  }
}

TEST_F(GpuStatistics, OfExpertsAreThoseOfTheCpu) {
  const char* name = "qwen2-moe-tiny";
  const Windows text = windows(name, 5, 40);
  LayerStatistics gpu = measure(name, text, true), cpu = measure(name, text, false);
  ASSERT_EQ(gpu.note(), "");
  each_expert(config(name), [&](int site, int expert) {
    EXPECT_LE(difference(gpu.expert_moments(site, expert), cpu.expert_moments(site, expert)),
              kBehindProducts)
        << site << ' ' << expert;
  });
}

// A token whose logits of two experts are nearly equal may reach another one than on the CPU, and
// is then missing in the moments of one and new in those of the other: most experts have none.
TEST_F(GpuStatistics, OfMostExpertsAreThoseOfTheCpu) {
  for (const char* name : {"qwen3-moe-tiny", "gpt-oss-tiny"}) {
    const Windows text = windows(name, 5, 40);
    LayerStatistics gpu = measure(name, text, true), cpu = measure(name, text, false);
    std::vector<double> differences;
    each_expert(config(name), [&](int site, int expert) {
      const InputMoments& want = cpu.expert_moments(site, expert);
      const InputMoments& got = gpu.expert_moments(site, expert);
      EXPECT_NEAR(static_cast<double>(got.tokens), static_cast<double>(want.tokens), 2) << name;
      if (got.tokens == want.tokens) differences.push_back(difference(got, want));
    });
    ASSERT_GT(differences.size(), 4u) << name;
    std::sort(differences.begin(), differences.end());
    EXPECT_LE(differences[differences.size() / 2], kBehindProducts) << name;
  }
}

// Every token reaches as many experts as it is given: their moments add up to that multiple.
TEST_F(GpuStatistics, OfAllExpertsAddUpToThoseOfTheirInput) {
  const char* name = "qwen3-moe-tiny";
  LayerStatistics statistics = measure(name, windows(name, 5, 40), true);
  const LayerDesc layer = config(name).layers[0];
  const int site = layer.matrix(layer.experts.router).input;
  const InputMoments& all = statistics.moments(site);
  std::vector<double> sums(all.sums.size());
  int64_t tokens = 0;
  for (int i = 0; i < layer.experts.count; ++i) {
    const InputMoments& own = statistics.expert_moments(site, i);
    tokens += own.tokens;
    for (size_t at = 0; at < own.sums.size(); ++at)
      sums[at] += own.sums[at];
  }
  EXPECT_EQ(tokens, all.tokens * layer.experts.chosen);
  const std::vector<double> rms = all.rms();
  for (size_t i = 0; i < rms.size(); ++i) {
    for (size_t j = i; j < rms.size(); ++j) {
      const size_t at = i * rms.size() + j;
      const double size = rms[i] * rms[j] * static_cast<double>(tokens);
      ASSERT_NEAR(sums[at], static_cast<double>(layer.experts.chosen) * all.sums[at], 1e-5 * size);
    }
  }
}

TEST_F(GpuStatistics, AreTheSameEveryTime) {
  for (const char* name : {"qwen3-tiny", "qwen3-moe-tiny", "qwen35-tiny"}) {
    const Windows text = windows(name, 20, 60);
    LayerStatistics a = measure(name, text, true), b = measure(name, text, true);
    ASSERT_EQ(a.note() + b.note(), "") << "not both are measured on the GPU";
    for (int site = sites(config(name)) - 1; site >= 0; --site) {  // the second one begins again
      const InputMoments &left = a.moments(site), &right = b.moments(site);
      ASSERT_EQ(left.sums.size(), right.sums.size());
      EXPECT_TRUE(std::equal(left.sums.begin(), left.sums.end(), right.sums.begin()))
          << name << ' ' << site;
    }
  }
}

TEST_F(GpuStatistics, OfWhatTheGpuDoesNotRunAreTheCpus) {
  const char* name = "gemma4-tiny";
  const Windows text = windows(name, 2, 30);
  LayerStatistics asked = measure(name, text, true), cpu = measure(name, text, false);
  EXPECT_NE(asked.note(), "");
  EXPECT_EQ(difference(asked.moments(1), cpu.moments(1)), 0);
}

// Other programs may use the GPU, so its memory is not taken away for this.
TEST_F(GpuStatistics, LayersThatDoNotFitAreRefusedWithTheSizes) {
  CheckpointSource source = CheckpointSource::open(test::tiny_model("qwen3-tiny"));
  LoadOptions options;
  options.pool = &pool_;
  options.device = gpu_;
  options.batch_rows = 4096;
  options.device_spare = uint64_t{1} << 60;
  try {
    Model::check_part(source, read_config(source), options);
    FAIL() << "it fits";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::limit);
    EXPECT_NE(e.reason().find("does not fit into the GPU"), std::string::npos) << e.reason();
    EXPECT_NE(e.reason().find("workspaces for 4096 rows"), std::string::npos) << e.reason();
  }
}

TEST_F(GpuStatistics, StopWhenAskedTo) {
  LayerStatistics statistics(
      test::tiny_model("qwen3-tiny"), windows("qwen3-tiny", 3, 30), pool_,
      [] { throw Error(ErrorCode::interrupted, "", "stopped"); }, {}, gpu_);
  EXPECT_THROW(statistics.moments(0), Error);
}

}  // namespace
}  // namespace walsh
