// Tests statistics measured layer by layer against one run of the whole model, and against
// arithmetic.
#include "calibrate/layer_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "arch/plan.h"
#include "base/cuda/device.h"
#include "base/random.h"
#include "calibrate/text_windows.h"
#include "io/checkpoint.h"
#include "model/model_support.h"
#include "quantize/pipeline/open.h"
#include "threads.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using Windows = std::vector<std::vector<int32_t>>;

const char* const kModels[] = {"qwen2-tiny",
                               "qwen3-tiny",
                               "mistral-tiny",
                               "llama2-bias-tiny",
                               "olmo2-tiny",
                               "glm4-tiny",
                               "granite-tiny",
                               "qwen35-tiny",
                               "gemma4-tiny",
                               "lfm2-bias-tiny",
                               "granite-hybrid-dense-tiny"};

Windows random_windows(const ModelConfig& config, int64_t count, int64_t length) {
  Random random(21);
  Windows windows(static_cast<size_t>(count));
  for (auto& window : windows) {
    for (int64_t i = 0; i < length; ++i) {
      window.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(config.vocab))));
    }
  }
  return windows;
}

Model load(const std::string& name, ThreadPool& pool) {
  return test::load_folder(test::tiny_model(name), pool);
}

std::vector<float> upper(const InputMoments& m) {
  std::vector<float> values;
  for (int64_t i = 0; i < m.width; ++i)
    values.insert(values.end(), m.sums.data() + i * m.width + i, m.sums.data() + (i + 1) * m.width);
  return values;
}

// Measures all sites in one forward pass per window, the layers one after the other as they are in
// a session.
std::vector<InputMoments> measure_at_once(const Model& model, const Windows& windows) {
  const ModelConfig& c = model.config;
  std::map<const Input*, size_t> index;
  std::vector<InputMoments> moments;
  const auto site = [&](const Input& input, int64_t width) {
    index[&input] = moments.size();
    moments.emplace_back(width);
  };
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (size_t i = 0; i < model.steps.layers[layer].inputs.size(); ++i)
      site(model.steps.layers[layer].inputs[i], c.layers[layer].activations[i].width);
  site(model.input(-1, 0), c.hidden);
  SessionOptions options;
  options.max_positions = static_cast<int64_t>(windows.front().size());
  KvPages pages(kv_shape(model, options));
  const Growth window{pages.open(), options.max_positions};
  pages.reserve({&window, 1});
  CpuExecutor executor(model, pages, options.max_bytes);
  executor.observe([&](const Input& input, const CpuExecutor::InputRows& rows) {
    if (rows.expert < 0)
      moments[index.at(&input)].add(rows.values, rows.stride, rows.count, model.pool());
  });
  for (const auto& window : windows) {
    const auto rows = static_cast<int64_t>(window.size());
    EXPECT_LE(rows, executor.max_rows());
    const Run run{0, 0, rows};
    executor.run_parts({window, {&run, 1}}, [&] {
      executor.embed();
      for (const LayerSteps& layer : executor.steps().layers)
        for (const Step& step : layer.steps)
          executor.execute(step);
      executor.prepare_head(0, rows);
    });
  }
  return moments;
}

TEST(LayerStatistics, AreThoseOfOneRunOfTheWholeModel) {
  for (const char* name : kModels) {
    ThreadPool pool(test::kThreads);
    const Model model = load(name, pool);
    const Windows windows = random_windows(model.config, 3, 40);
    const std::vector<InputMoments> expected = measure_at_once(model, windows);
    LayerStatistics statistics(test::tiny_model(name), windows, pool);
    for (size_t s = 0; s < expected.size(); ++s) {
      const InputMoments& got = statistics.moments(static_cast<int>(s));
      EXPECT_EQ(got.width, expected[s].width) << name << ' ' << s;
      EXPECT_EQ(got.tokens, 120) << name << ' ' << s;
      EXPECT_TRUE(upper(got) == upper(expected[s])) << name << ' ' << s;
    }
  }
}

// The folded model is run itself, in float32 and as a whole. Its cache rounds values to fp16 in
// another basis.
TEST(LayerStatistics, WithAFoldAreThoseOfTheFoldedModel) {
  for (const char* name : kModels) {
    ThreadPool pool(test::kThreads);
    const std::string folder = test::tiny_model(name);
    const ModelPlan plan = read_plan(Checkpoint::open(folder).config_json(), folder);
    if (!plan.residual.refusal.empty()) continue;
    Recipe recipe;
    recipe.type = &get_format("f32");
    recipe.embed_type = recipe.head_type = recipe.type;
    recipe.rotate = RotateAt::residual;
    const auto source = open_source(folder, &recipe, pool);
    const Model model = Model::load(*source, parse_config(source->config_json(), folder),
                                    {&pool, ActivationMode::automatic, {}});
    const Windows windows = random_windows(model.config, 3, 40);
    const std::vector<InputMoments> expected = measure_at_once(model, windows);
    LayerStatistics statistics(folder, windows, pool, {}, fold_rotation(recipe));
    for (size_t s = 0; s < expected.size(); ++s) {
      const InputMoments& want = expected[s];
      const InputMoments& got = statistics.moments(static_cast<int>(s));
      ASSERT_EQ(got.width, want.width) << name << ' ' << s;
      EXPECT_EQ(got.tokens, want.tokens);
      const std::vector<double> rms = want.rms();
      double worst = 0;
      for (int64_t i = 0; i < want.width; ++i) {
        for (int64_t j = i; j < want.width; ++j) {
          const auto at = static_cast<size_t>(i * want.width + j);
          const double size =
              rms[static_cast<size_t>(i)] * rms[static_cast<size_t>(j)] * double(want.tokens);
          worst = std::max(worst, std::fabs(double{got.sums[at]} - double{want.sums[at]}) / size);
        }
      }
      EXPECT_LT(worst, 2e-3) << name << ' ' << s;
    }
  }
}

// Every token reaches as many experts as it is given, so the moments of all experts add up to that
// multiple of the site's.
TEST(LayerStatistics, OfExpertsAreThoseOfTheTokensThatReachedThem) {
  ThreadPool pool(test::kThreads);
  const Windows windows = random_windows(load("qwen2-moe-tiny", pool).config, 3, 40);
  const std::optional<Rotation> folds[] = {{}, Rotation{RotationKind::hadamard, 1024, 42, true}};
  for (const std::optional<Rotation>& fold : folds) {
    LayerStatistics statistics(test::tiny_model("qwen2-moe-tiny"), windows, pool, {}, fold);
    const ModelConfig config = load("qwen2-moe-tiny", pool).config;
    const ExpertsDesc& e = config.layers[1].experts;
    const int first = static_cast<int>(config.layers[0].activations.size());
    const int site = first + config.layers[1].matrix(e.router).input;
    const InputMoments& all = statistics.moments(site);
    std::vector<double> sums(all.sums.size());
    int64_t tokens = 0;
    for (int i = 0; i < e.count; ++i) {
      const InputMoments& own = statistics.expert_moments(site, i);
      EXPECT_EQ(own.width, all.width);
      tokens += own.tokens;
      for (size_t j = 0; j < sums.size(); ++j)
        sums[j] += own.sums[j];
      const InputMoments& down =
          statistics.expert_moments(first + config.layers[1].matrix(e.down(i)).input, i);
      EXPECT_EQ(down.width, e.width);
      EXPECT_EQ(down.tokens, own.tokens);
    }
    EXPECT_EQ(tokens, 120 * e.chosen);
    for (int64_t i = 0; i < all.width; ++i) {
      for (int64_t j = i; j < all.width; ++j) {
        const auto at = static_cast<size_t>(i * all.width + j);
        ASSERT_NEAR(sums[at], static_cast<double>(e.chosen) * all.sums[at], 1e-2);
      }
    }
  }
}

TEST(LayerStatistics, OfAnExpertThatNoTokenReachedAreNone) {
  ThreadPool pool(1);
  LayerStatistics statistics(test::tiny_model("qwen3-moe-tiny"), {{5}}, pool);
  const ModelConfig config = load("qwen3-moe-tiny", pool).config;
  const int site = config.layers[0].matrix(config.layers[0].experts.router).input;
  int64_t reached = 0;
  for (int i = 0; i < config.layers[0].experts.count; ++i)
    reached += statistics.expert_moments(site, i).tokens;
  EXPECT_EQ(reached, config.layers[0].experts.chosen);
}

// The first site reads normalized embeddings, which are quickly written out.
TEST(LayerStatistics, AreSecondMomentsOfTheNormalizedEmbeddingsAtTheFirstSite) {
  ThreadPool pool(1);
  const Model model = load("qwen3-tiny", pool);
  const ModelConfig& c = model.config;
  const Windows windows = random_windows(c, 2, 33);
  const auto n = static_cast<size_t>(c.hidden);
  std::vector<double> expected(n * n);
  std::vector<float> row(n), scratch(static_cast<size_t>(model.embedding.scratch()));
  for (const auto& window : windows) {
    for (const int32_t token : window) {
      model.embedding.look_up(token, model.config.embedding_scale, row.data(), scratch.data());
      double squares = 0;
      for (const float v : row)
        squares += double{v} * double{v};
      const double scale = 1 / std::sqrt(squares / static_cast<double>(n) +
                                         double{c.layers[0].activations[0].norm.eps});
      const std::span<const float> gain = model.vector(0, model.input(0, 0).norm.gain);
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < n; ++j) {
          expected[i * n + j] +=
              double{row[i]} * scale * double{gain[i]} * double{row[j]} * scale * double{gain[j]};
        }
      }
    }
  }
  LayerStatistics statistics(test::tiny_model("qwen3-tiny"), windows, pool);
  const InputMoments& got = statistics.moments(0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i; j < n; ++j) {
      const double size = std::sqrt(expected[i * n + i] * expected[j * n + j]);
      ASSERT_NEAR(got.sums[i * n + j], expected[i * n + j], 1e-4 * size);
    }
  }
}

TEST(LayerStatistics, DoNotDependOnTheThreadsAndMayBeAskedForAgain) {
  const std::string folder = test::tiny_model("qwen2-tiny");
  ThreadPool one(1), three(3);
  const Windows windows = random_windows(load("qwen2-tiny", one).config, 2, 50);
  const std::optional<Rotation> folds[] = {{}, Rotation{RotationKind::hadamard, 1024, 42, true}};
  for (const std::optional<Rotation>& fold : folds) {
    LayerStatistics a(folder, windows, one, {}, fold), b(folder, windows, three, {}, fold);
    const std::vector<float> first = upper(a.moments(2));
    EXPECT_TRUE(upper(b.moments(2)) == first);
    const std::vector<float> later = upper(a.moments(5));
    EXPECT_TRUE(upper(b.moments(5)) == later);
    EXPECT_TRUE(upper(a.moments(2)) == first);
    EXPECT_TRUE(upper(a.moments(5)) == later);
  }
}

// A window longer than the rows of a batch is run in pieces that share the cache.
TEST(LayerStatistics, SeeTheWholeWindow) {
  ThreadPool pool(test::kThreads);
  const Model model = load("mistral-tiny", pool);
  const auto length = std::min<int64_t>(300, model.config.max_positions);
  Windows windows = random_windows(model.config, 1, length);
  LayerStatistics whole(test::tiny_model("mistral-tiny"), windows, pool);
  const std::vector<float> before = upper(whole.moments(5));
  windows[0][0] = (windows[0][0] + 1) % static_cast<int32_t>(model.config.vocab);
  LayerStatistics changed(test::tiny_model("mistral-tiny"), windows, pool);
  EXPECT_EQ(changed.moments(5).tokens, length);
  EXPECT_FALSE(upper(changed.moments(5)) == before);
}

TEST(LayerStatistics, RefuseWhatCannotBeRun) {
  ThreadPool pool(1);
  const std::string folder = test::tiny_model("qwen3-tiny");
  const auto code = [&](Windows windows) {
    try {
      LayerStatistics statistics(folder, std::move(windows), pool);
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::internal;
  };
  EXPECT_EQ(code({}), ErrorCode::usage);
  EXPECT_EQ(code({{}}), ErrorCode::usage);
  EXPECT_EQ(code({{-1}}), ErrorCode::usage);
  EXPECT_EQ(code({{1 << 30}}), ErrorCode::usage);
  EXPECT_EQ(code({std::vector<int32_t>(1 << 20)}), ErrorCode::usage);
}

TEST(LayerStatistics, AreTheCpusWhereThereIsNoGpuAndANoteSaysSo) {
  if (!cuda::devices().empty()) GTEST_SKIP() << "there is a GPU";
  ThreadPool pool(1);
  const std::string folder = test::tiny_model("qwen3-tiny");
  LayerStatistics asked(folder, {{1, 2, 3}}, pool, {}, {}, {true, 0});
  LayerStatistics cpu(folder, {{1, 2, 3}}, pool);
  EXPECT_NE(asked.note().find("cuda:0"), std::string::npos);
  EXPECT_EQ(cpu.note(), "");
  EXPECT_TRUE(upper(asked.moments(1)) == upper(cpu.moments(1)));
}

TEST(LayerStatistics, StopWhenAskedTo) {
  ThreadPool pool(1);
  const std::string folder = test::tiny_model("qwen3-tiny");
  int windows_run = 0;
  LayerStatistics statistics(folder, {{1, 2}, {3, 4}, {5, 6}}, pool, [&] {
    if (++windows_run == 2) throw Error(ErrorCode::interrupted, "", "stopped");
  });
  EXPECT_THROW(statistics.moments(0), Error);
  EXPECT_EQ(windows_run, 2);
}

TEST(CalibrationWindows, AreSpreadOverTheTextAndBeginWithBos) {
  std::vector<int32_t> text(1000);
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<int32_t>(i);
  const auto windows = calibration_windows(text, 350, 100, -1);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0].front(), 0);
  EXPECT_EQ(windows[1].front(), 450);
  EXPECT_EQ(windows[2].back(), 999);
  for (const auto& window : calibration_windows(text, 1000, 100, 7)) {
    EXPECT_EQ(window.size(), 100u);
    EXPECT_EQ(window.front(), 7);
    EXPECT_EQ(window[2], window[1] + 1);
  }
  EXPECT_EQ(calibration_windows(text, 0, 100, -1).size(), 10u);
  EXPECT_EQ(calibration_windows(text, 5, 100, -1).size(), 1u);
}

TEST(CalibrationWindows, RefuseATextThatIsTooShort) {
  const std::vector<int32_t> text(1000);
  EXPECT_THROW(calibration_windows(text, 1001, 100, -1), Error);
  EXPECT_THROW(calibration_windows(text, 0, 1001, -1), Error);
  EXPECT_NO_THROW(calibration_windows(text, 1000, 1000, -1));
}

}  // namespace
}  // namespace walsh
