// Models in two parts on the CPU have the same bits as whole models.
#include "model/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "golden.h"
#include "model/op_count.h"
#include "model/synthetic.h"
#include "model_support.h"
#include "ragged.h"
#include "threads.h"
#include "walsh/stop.h"

namespace walsh {
namespace {

using testing::HasSubstr;

ModelConfig config_of(const WeightSource& source) {
  return parse_config(source.config_json(), source.path());
}

SyntheticSource synthetic(std::string_view shape, std::string_view type = "tq3") {
  return SyntheticSource(shape, {&get_format(type), &get_format("f16"), &get_format("f16")});
}

// Returns every way to take layers, or experts, from the second part.
std::vector<LayerSplit> splits_of(const ModelConfig& config) {
  const auto layers = static_cast<int64_t>(config.layers.size());
  std::vector<LayerSplit> all;
  for (int64_t first = 0; first < layers; ++first) {
    if (first > 0) all.push_back({first, 0});
    for (int64_t experts = first + 1; has_experts(config) && experts <= layers; ++experts)
      all.push_back({first, experts});
  }
  return all;
}

std::string name_of(const LayerSplit& split) {
  return std::to_string(split.cpu_layers) + " layers, experts of " +
         std::to_string(split.cpu_experts);
}

struct Kept {
  const char *keys, *values;
  int64_t window;
  const char* shape;
  LayerSplit split;
};

class SplitBatches : public testing::TestWithParam<Kept> {};

TEST_P(SplitBatches, GiveTheBitsOfTheWholeModel) {
  ThreadPool pool(test::kThreads);
  SyntheticSource source = synthetic(GetParam().shape);
  LoadOptions load;
  load.pool = &pool;
  load.cache = {&get_cache_type(GetParam().keys), &get_cache_type(GetParam().values),
                GetParam().window};
  const Model whole = Model::load(source, config_of(source), load);
  const Model parts = Model::load_parts(source, whole.config, load, GetParam().split);
  SessionOptions options;
  options.max_positions = 500;
  options.sequences = 6;
  options.cache_positions = 7 * kCpuPagePositions;  // of 12
  options.snapshots = is_recurrent(whole.config) ? 7 : 0;
  int refusals = 0, forks = 0, returns = 0;
  for (const uint64_t seed : {1, 2}) {
    test::RaggedBatches batches(parts, options, seed), expected(whole, options, seed);
    batches.run(60);
    expected.run(60);
    refusals += batches.refusals();
    forks += batches.forks();
    returns += batches.returns();
    ASSERT_EQ(batches.results().size(), expected.results().size());
    for (size_t i = 0; i < batches.results().size(); ++i)
      EXPECT_EQ(batches.results()[i].logits, expected.results()[i].logits);
  }
  EXPECT_GT(refusals, 0);
  EXPECT_GT(forks, 5);
  EXPECT_GT(returns, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SplitBatches,
                         testing::Values(Kept{"f16", "f16", 32, "tiny", {1, 0}},
                                         Kept{"tq3_0", "tq3_0", 32, "tiny", {1, 0}},
                                         Kept{"kt4", "q8_0", 7, "tiny", {1, 0}},
                                         Kept{"f16", "kt3", 100, "tiny", {1, 0}},
                                         Kept{"q4_0", "f16", 0, "tiny", {1, 0}},
                                         Kept{"f16", "f16", 32, "tiny-moe", {0, 2}},
                                         Kept{"tq3_0", "q8_0", 32, "tiny-moe", {0, 1}},
                                         Kept{"f16", "f16", 32, "tiny-moe", {1, 2}},
                                         Kept{"tq3_0", "tq3_0", 32, "tiny-latent", {0, 2}},
                                         Kept{"kt4", "tq3_0", 20, "tiny-chunks", {1, 2}},
                                         Kept{"f16", "f16", 32, "tiny-delta", {1, 0}},
                                         Kept{"tq3_0", "tq3_0", 32, "tiny-delta", {3, 0}}));

// Tests for every family all borders between the parts, prompts and single tokens. What cannot be
// split is refused by name.
class SplitFamilies : public testing::TestWithParam<std::string> {};

TEST_P(SplitFamilies, GiveTheBitsOfTheWholeModel) {
  ThreadPool pool(test::kThreads);
  const std::string folder = test::tiny_model(GetParam());
  CheckpointSource source = CheckpointSource::open(folder);
  LoadOptions load;
  load.pool = &pool;
  const Model whole = Model::load(source, config_of(source), load);
  const auto tokens = test::random_tokens(24, whole.config.vocab, 3);
  const std::vector<int32_t> next = {tokens[0]};
  Session session(whole, {32});
  const auto logits = test::all_logits(session, tokens), more = test::all_logits(session, next);
  for (const LayerSplit& split : splits_of(whole.config)) {
    if (const std::string why = why_not(whole.config, split); !why.empty()) {
      try {
        Model::load_parts(source, whole.config, load, split);
        ADD_FAILURE() << name_of(split) << " is not refused";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::usage);
        EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
      }
      continue;
    }
    const Model parts = Model::load_parts(source, whole.config, load, split);
    Session divided(parts, {32});
    EXPECT_EQ(test::all_logits(divided, tokens), logits) << name_of(split);
    EXPECT_EQ(test::all_logits(divided, next), more) << name_of(split);
    EXPECT_EQ(parts.model_bytes(), whole.model_bytes()) << name_of(split);
  }
}

std::string model_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Golden, SplitFamilies, testing::ValuesIn(test::tiny_models()), model_name);

TEST(Split, ABatchThatFailedIsAsIfItHadNotBeen) {
  ThreadPool pool(test::kThreads);
  SyntheticSource source = synthetic("tiny-delta");
  LoadOptions load;
  load.pool = &pool;
  const Model whole = Model::load(source, config_of(source), load);
  const Model parts = Model::load_parts(source, whole.config, load, {2, 0});
  SessionOptions options{250};
  options.snapshots = 1;
  Session session(parts, options), alone(whole, options);
  const auto text = test::random_tokens(60, 500, 1), other = test::random_tokens(20, 500, 2);
  const SequenceTokens first{0, text, 0, 33}, second{0, other, 0, 0};
  session.evaluate({&first, 1}, [](size_t, int64_t, std::span<const float>) {});
  const std::atomic<bool> stop = true;
  {
    const StopScope scope(stop);
    EXPECT_THROW(session.evaluate({&second, 1}, [](size_t, int64_t, std::span<const float>) {}),
                 Error);
  }
  EXPECT_EQ(session.position(), 33);
  auto expected = std::vector(text.begin(), text.begin() + 33);
  expected.insert(expected.end(), other.begin(), other.end());
  EXPECT_EQ(test::all_logits(session, other).back(), test::all_logits(alone, expected).back());
}

TEST(Split, CountsAreThoseOfTheWholeModel) {
  ThreadPool pool(test::kThreads);
  LoadOptions load;
  load.pool = &pool;
  for (const char* shape : {"tiny", "tiny-moe", "tiny-latent", "tiny-delta"}) {
    SyntheticSource source = synthetic(shape);
    const Model whole = Model::load(source, config_of(source), load);
    for (const LayerSplit& split : splits_of(whole.config)) {
      const Model parts = Model::load_parts(source, whole.config, load, split);
      EXPECT_EQ(parts.model_bytes(), whole.model_bytes()) << shape;
      EXPECT_EQ(parts.bytes_per_token(), whole.bytes_per_token()) << shape;
      EXPECT_DOUBLE_EQ(parts.bits_per_weight(), whole.bits_per_weight()) << shape;
      EXPECT_EQ(parts.type_name(), whole.type_name()) << shape;
      EXPECT_EQ(count_head(parts), count_head(whole)) << shape;
      EXPECT_EQ(count_embedding(parts), count_embedding(whole)) << shape;
      for (size_t i = 0; i < whole.layers.size(); ++i) {
        const auto layer = static_cast<int64_t>(i);
        const OpCount own = count_layer(parts, layer), all = count_layer(whole, layer);
        EXPECT_EQ(own.lookups, all.lookups) << shape << i;
        // The input that routed experts and a shared expert read is rotated in both parts.
        if (split.cpu_experts == 0 || whole.config.layers[i].mlp.width == 0) {
          EXPECT_EQ(own, all) << shape << i;
        }
      }
    }
  }
}

// Each part has memory for its own layers alone.
TEST(Split, PartsHaveTheTensorsThatTheyUse) {
  const ModelConfig config = config_of(synthetic("tiny-moe"));
  const ModelParts parts = split_config(config, {0, 1});
  EXPECT_EQ(parts.first.layers.size(), config.layers.size());
  EXPECT_FALSE(has_mixer(parts.first.layers[0]));
  EXPECT_TRUE(parts.first.layers[0].experts.present());
  EXPECT_TRUE(has_mixer(parts.second.layers[0]));
  EXPECT_TRUE(experts_elsewhere(parts.second.layers[0]));
  EXPECT_FALSE(experts_elsewhere(parts.first.layers[0]));
  EXPECT_EQ(parts.first.layers[0].matrices.size() + parts.second.layers[0].matrices.size(),
            config.layers[0].matrices.size());
  EXPECT_TRUE(parts.first.layers[1].matrices.empty());
  EXPECT_EQ(parts.second.layers[1].matrices.size(), config.layers[1].matrices.size());
  const ModelConfig shared = config_of(synthetic("tiny-latent"));
  const ModelParts both = split_config(shared, {0, 2});
  EXPECT_GE(both.second.layers[1].mlp.gate, 0) << "a shared expert stays";
  EXPECT_EQ(both.first.layers[1].mlp.gate, -1);
  for (const MatrixDesc& m : both.second.layers[1].matrices)
    EXPECT_EQ(m.expert, -1);
  EXPECT_TRUE(parts.first.head.weight.empty());
  EXPECT_TRUE(parts.second.embedding.empty());
}

// Notes which splits are tried, and which is chosen if a number of layers and of layers' experts
// fits.
struct Room {
  int64_t layers, expert_layers;
};

std::optional<LayerSplit> chosen(const ModelConfig& config, int64_t cpu_experts, const Room& room) {
  const auto count = static_cast<int64_t>(config.layers.size());
  return choose_split(config, cpu_experts, [&](const LayerSplit& split) {
    const int64_t first = std::max(split.cpu_layers, split.cpu_experts);
    return count - split.cpu_layers <= room.layers && count - first <= room.expert_layers;
  });
}

TEST(SplitChoice, GivesTheGpuAsMuchAsFits) {
  const ModelConfig dense = config_of(synthetic("1b")), sparse = config_of(synthetic("30b-a3b"));
  EXPECT_EQ(chosen(dense, kPlanned, {22, 22}), (LayerSplit{0, 0}));
  for (const int64_t layers : {1, 2, 10, 21})
    EXPECT_EQ(chosen(dense, kPlanned, {layers, layers}), (LayerSplit{22 - layers, 0}));
  EXPECT_EQ(chosen(dense, kPlanned, {0, 0}), std::nullopt);
  EXPECT_EQ(chosen(sparse, kPlanned, {48, 48}), (LayerSplit{0, 0}));
  for (const int64_t experts : {0, 1, 24, 47})
    EXPECT_EQ(chosen(sparse, kPlanned, {48, experts}), (LayerSplit{0, 48 - experts}));
  EXPECT_EQ(chosen(sparse, kPlanned, {30, 0}), (LayerSplit{18, 48}));
  EXPECT_EQ(chosen(sparse, kPlanned, {0, 0}), std::nullopt);
  EXPECT_EQ(chosen(sparse, 5, {48, 43}), (LayerSplit{0, 5}));
  EXPECT_EQ(chosen(sparse, 5, {48, 20}), (LayerSplit{28, 5}));
}

TEST(SplitChoice, NumbersCountFromTheLastLayerAndFromTheFirst) {
  const ModelConfig config = config_of(synthetic("30b-a3b"));
  EXPECT_EQ(wanted_split(config, 20, 4), (LayerSplit{28, 4}));
  EXPECT_EQ(wanted_split(config, kAllLayers, 99), (LayerSplit{0, 48}));
  EXPECT_EQ(wanted_split(config, 99, kPlanned), (LayerSplit{0, 0}));
  const Device gpu{true, 1};
  EXPECT_EQ(split_text(config, {28, 4}, gpu),
            "cuda:1 has the last 20 of 48 layers, the CPU the "
            "rest");
  EXPECT_EQ(split_text(config, {0, 12}, gpu),
            "cuda:1 has all 48 layers without the experts of 12 of them, the CPU the rest");
}

class SplitCounts : public testing::Test {
 protected:
  std::string refusal(const char* shape, int64_t gpu_layers, int64_t cpu_experts) {
    SyntheticSource source = synthetic(shape);
    LoadOptions options;
    options.pool = &pool_;
    options.gpu_layers = gpu_layers;
    options.cpu_experts = cpu_experts;
    try {
      Model::load(source, config_of(source), options);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      return e.what();
    }
    return "";
  }

  ThreadPool pool_{1};
};

TEST_F(SplitCounts, LayersOnAGpuNeedOne) {
  EXPECT_THAT(refusal("tiny", 1, 0), HasSubstr("gpu-layers: 1 asked for, but no GPU is used"));
  EXPECT_THAT(refusal("tiny", 99, 0), HasSubstr("no GPU is used"));
  EXPECT_EQ(refusal("tiny", kPlanned, kPlanned), "");
  EXPECT_EQ(refusal("tiny-moe", kAllLayers, 1), "") << "the CPU has all experts as it is";
}

TEST_F(SplitCounts, ExpertsThatAModelHasNotAreRefused) {
  EXPECT_THAT(refusal("tiny", kAllLayers, 1), HasSubstr("cpu-experts: the model has no experts"));
  EXPECT_THAT(refusal("tiny", -2, 0), HasSubstr("gpu-layers"));
  EXPECT_THAT(refusal("tiny-moe", 0, -2), HasSubstr("cpu-experts"));
}

// An option that the device of one part lacks is refused, and the message names the parts.
TEST_F(SplitCounts, AnOptionThatOnePartHasNotIsRefusedWithTheParts) {
  SyntheticSource source = synthetic("tiny");
  LoadOptions options;
  options.pool = &pool_;
  options.device = {true, 0};
  options.gpu_layers = 1;
  options.rotate_weights = true;
  try {
    Model::load(source, config_of(source), options);
    FAIL() << "--rotate weights on the CPU";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_THAT(e.what(), HasSubstr("--rotate weights works only on a GPU"));
    EXPECT_THAT(e.what(),
                HasSubstr("; you asked for: cuda:0 has the last 1 of 2 layers, the CPU the "
                          "rest"));
  }
}

TEST_F(SplitCounts, NoLayersOnAGpuAreTheModelOnTheCpu) {
  SyntheticSource source = synthetic("tiny");
  LoadOptions options;
  options.pool = &pool_;
  const Model cpu = Model::load(source, config_of(source), options);
  options.device = {true, 0};  // is not even asked for
  options.gpu_layers = 0;
  const Model none = Model::load(source, config_of(source), options);
  EXPECT_EQ(none.device, Device{});
  EXPECT_TRUE(none.parts.empty());
  Session first(cpu, {16}), second(none, {16});
  const auto tokens = test::random_tokens(16, 500, 4);
  EXPECT_EQ(test::all_logits(first, tokens), test::all_logits(second, tokens));
}

}  // namespace
}  // namespace walsh
