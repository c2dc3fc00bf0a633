// Tests models with some layers, or some experts, on the CPU.
#include "model/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "../ragged.h"
#include "gpu_models.h"
#include "short_run.h"

namespace walsh {
namespace {

using test::divergence;
using test::random_tokens;
using testing::HasSubstr;

// These tolerances are for the rounding of other kernels, after experts that a rounding chose, and
// in codes of keys and values.
constexpr double kRounding = 1e-3, kChosen = 1e-2, kCoded = 2e-2, kChosenAndCoded = 1e-1;

struct Divided {
  const char *shape, *type, *cache;
  LayerSplit split;
  double bound;
};

class GpuSplit : public test::GpuTest {
 protected:
  LoadOptions options(const char* cache) {
    LoadOptions options;
    options.pool = &pool_;
    options.device = gpu_;
    options.activations = ActivationMode::i8x2;
    options.cache = {&get_cache_type(cache), &get_cache_type(cache), 32};
    return options;
  }
  static SyntheticSource source(const char* shape, const char* type) {
    return SyntheticSource(shape, {&get_format(type), &get_format("f16"), &get_format("f16")});
  }
  static ModelConfig config_of(const WeightSource& source) {
    return parse_config(source.config_json(), source.path());
  }
};

class GpuSplitModels : public GpuSplit, public testing::WithParamInterface<Divided> {
 protected:
  Model load_parts() {
    SyntheticSource weights = source(GetParam().shape, GetParam().type);
    return Model::load_parts(weights, config_of(weights), options(GetParam().cache),
                             GetParam().split);
  }
  Model load_cpu() {
    SyntheticSource weights = source(GetParam().shape, GetParam().type);
    LoadOptions cpu = options(GetParam().cache);
    cpu.device = {};
    return Model::load(weights, config_of(weights), cpu);
  }
};

// A prompt of several batches comes first, then single tokens, from the third on by recorded steps.
TEST_P(GpuSplitModels, GiveTheLogitsOfTheCpu) {
  const Model cpu = load_cpu(), parts = load_parts();
  const auto tokens = random_tokens(test::times(300, 40), 500, 1);
  const auto count = static_cast<int64_t>(tokens.size());
  Session expected(cpu, {count + 8}), session(parts, {count + 8});
  EXPECT_LT(divergence(test::all_logits(expected, tokens), test::all_logits(session, tokens)),
            GetParam().bound);
  test::Rows rows, wanted;
  for (int i = 0; i < 8; ++i) {
    rows.push_back(test::all_logits(session, {tokens[static_cast<size_t>(i)]}).back());
    wanted.push_back(test::all_logits(expected, {tokens[static_cast<size_t>(i)]}).back());
  }
  EXPECT_LT(divergence(wanted, rows), GetParam().bound);
}

TEST_P(GpuSplitModels, RaggedBatchesGiveEverySequenceWhatItGetsAlone) {
  const Model parts = load_parts();
  if (is_recurrent(parts.config) && parts.cache.coded()) GTEST_SKIP() << "codes stay as they were";
  SessionOptions session;
  session.max_positions = 300;
  session.sequences = 6;
  session.cache_positions = 5 * kCpuPagePositions;
  session.snapshots = is_recurrent(parts.config) ? 7 : 0;
  test::RaggedBatches batches(parts, session, 1);
  batches.run(test::times(60, 12));
  EXPECT_GT(batches.forks(), 0);
  for (const auto& result : batches.results()) {
    const auto expected = test::RaggedBatches::alone(parts, 300, result.history);
    EXPECT_LT(divergence({expected}, {result.logits}), 10 * GetParam().bound);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GpuSplitModels,
                         testing::Values(Divided{"tiny", "tq3", "f16", {1, 0}, kRounding},
                                         Divided{"tiny", "f16", "f16", {1, 0}, kRounding},
                                         Divided{"tiny", "tq3", "tq3_0", {1, 0}, kCoded},
                                         Divided{"tiny-moe", "tq4", "f16", {0, 2}, kChosen},
                                         Divided{"tiny-moe", "tq4", "f16", {0, 1}, kChosen},
                                         Divided{"tiny-moe", "tq4", "f16", {1, 2}, kChosen},
                                         Divided{
                                             "tiny-moe", "tq4", "tq3_0", {0, 2}, kChosenAndCoded},
                                         Divided{"tiny-latent", "tq4", "f16", {0, 2}, kChosen},
                                         Divided{"tiny-delta", "tq3", "f16", {1, 0}, kRounding},
                                         Divided{"tiny-delta", "tq3", "f16", {3, 0}, kRounding},
                                         Divided{"tiny-delta", "tq3", "tq3_0", {2, 0}, kCoded}));

// The plan of a GPU's part is what it takes.
TEST_P(GpuSplitModels, ThePlanIsWhatIsTaken) {
  SyntheticSource weights = source(GetParam().shape, GetParam().type);
  LoadOptions load = options(GetParam().cache);
  load.use.max_positions = 1000;
  load.use.sequences = 3;
  const ModelConfig config = config_of(weights);
  const uint64_t free = cuda::use_device(gpu_.index).free_bytes;
  const MemoryPlan plan =
      plan_cuda_memory(weights, split_config(config, GetParam().split).second, load, free);
  const uint64_t before = cuda::allocated_bytes();
  const Model model = Model::load_parts(weights, config, load, GetParam().split);
  const Session session(model, load.use);
  const auto taken = static_cast<double>(cuda::allocated_bytes() - before);
  const auto planned = static_cast<double>(plan.total() - kCudaReserve);
  EXPECT_NEAR(taken, planned, 0.01 * planned) << plan.text();
}

// If a model does not fit, the GPU has as much as fits, within the limit.
TEST_F(GpuSplit, AsManyLayersAsFitAreOnTheGpu) {
  SyntheticSource weights = source("1b", "q8_0");
  LoadOptions load = options("f16");
  load.use.max_positions = 2048;
  load.gpu_layers = load.cpu_experts = kPlanned;
  load.device_bytes = uint64_t{900} << 20;
  const ModelConfig config = config_of(weights);
  const uint64_t before = cuda::allocated_bytes();
  const Model model = Model::load(weights, config, load);
  ASSERT_EQ(model.parts.size(), 2u);
  EXPECT_THAT(model.device_note, HasSubstr("of 22 layers, the CPU the rest"));
  EXPECT_THAT(model.device_note, HasSubstr("does not fit into the GPU"));
  const Session session(model, load.use);
  EXPECT_LE(cuda::allocated_bytes() - before, load.device_bytes);
  const auto& layers = model.parts[1].config.layers;
  const auto there = std::count_if(layers.begin(), layers.end(), has_mixer);
  EXPECT_GT(there, 0);
  EXPECT_LT(there, 22);
  // One more would not have fitted.
  load.gpu_layers = there + 1;
  try {
    Model::load(weights, config, load);
    ADD_FAILURE() << "one more fits";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::limit);
    EXPECT_THAT(e.what(), HasSubstr("asked for: " + gpu_.name() + " has the last " +
                                    std::to_string(there + 1) + " of 22 layers"));
  }
}

TEST_F(GpuSplit, ExpertsLeaveTheGpuBeforeLayersDo) {
  SyntheticSource weights = source("tiny-moe", "f32");
  LoadOptions load = options("f16");
  load.use.max_positions = 64;
  load.gpu_layers = load.cpu_experts = kPlanned;
  const ModelConfig config = config_of(weights);
  const auto needed = [&](const LayerSplit& split) {
    return plan_cuda_memory(weights, split_config(config, split).second, load, uint64_t{1} << 40)
        .total();
  };
  load.device_bytes = needed({0, 1});
  const Model one = Model::load(weights, config, load);
  EXPECT_THAT(one.device_note, HasSubstr("all 2 layers without the experts of 1 of them"));
  load.device_bytes = needed({0, 2});
  const Model both = Model::load(weights, config, load);
  EXPECT_THAT(both.device_note, HasSubstr("all 2 layers without the experts of 2 of them"));
  load.device_bytes = needed({1, 2});
  const Model less = Model::load(weights, config, load);
  EXPECT_THAT(less.device_note, HasSubstr("the last 1 of 2 layers without the experts of 1"));
}

// With all experts of the model, or all layers, on the CPU there is nothing to hand over.
TEST_F(GpuSplit, NumbersThatAreThoseOfTheWholeModelGiveIt) {
  SyntheticSource weights = source("tiny-moe", "tq4");
  LoadOptions load = options("f16");
  load.gpu_layers = 99;
  EXPECT_TRUE(Model::load(weights, config_of(weights), load).parts.empty());
  load.gpu_layers = 0;
  EXPECT_EQ(Model::load(weights, config_of(weights), load).device, Device{});
}

}  // namespace
}  // namespace walsh
