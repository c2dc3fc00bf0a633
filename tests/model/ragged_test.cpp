#include "ragged.h"

#include <gtest/gtest.h>

#include "model/synthetic.h"
#include "model_support.h"
#include "threads.h"

namespace walsh {
namespace {

struct Kept {
  const char *keys, *values;
  int64_t window;
  const char* shape = "tiny";
};

class RaggedBatch : public testing::TestWithParam<Kept> {};

TEST_P(RaggedBatch, GivesEverySequenceWhatItGetsAlone) {
  ThreadPool pool(test::kThreads);
  SyntheticSource source(GetParam().shape,
                         {&get_format("tq3"), &get_format("f16"), &get_format("f16")});
  LoadOptions load;
  load.pool = &pool;
  load.cache = {&get_cache_type(GetParam().keys), &get_cache_type(GetParam().values),
                GetParam().window};
  const Model model = Model::load(source, parse_config(source.config_json(), source.path()), load);
  SessionOptions options;
  options.max_positions = 500;
  options.sequences = 6;
  options.cache_positions = 7 * kCpuPagePositions;  // of 12
  int refusals = 0, forks = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    test::RaggedBatches batches(model, options, seed);
    batches.run(60);
    refusals += batches.refusals();
    forks += batches.forks();
    for (const auto& result : batches.results())
      EXPECT_EQ(result.logits, test::RaggedBatches::alone(model, 500, result.history));
  }
  EXPECT_GT(refusals, 0);
  EXPECT_GT(forks, 10);
}

TEST(RaggedBatchOfRecurrentModel, GivesEverySequenceWhatItGetsAlone) {
  ThreadPool pool(test::kThreads);
  for (const char* name :
       {"qwen35-tiny", "qwen35-odd-tiny", "lfm2-bias-tiny", "granite-hybrid-wide-tiny"}) {
    const Model model = test::load_folder(test::tiny_model(name), pool);
    SessionOptions options;
    options.max_positions = 250;
    options.sequences = 6;
    options.cache_positions = 4 * kCpuPagePositions;
    options.snapshots = 7;
    int forks = 0, returns = 0;
    for (const uint64_t seed : {1, 2, 3}) {
      test::RaggedBatches batches(model, options, seed);
      batches.run(60);
      forks += batches.forks();
      returns += batches.returns();
      for (const auto& result : batches.results())
        EXPECT_EQ(result.logits, test::RaggedBatches::alone(model, 250, result.history));
    }
    EXPECT_GT(forks, 10);
    EXPECT_GT(returns, 5);
  }
}

INSTANTIATE_TEST_SUITE_P(CacheTypes, RaggedBatch,
                         testing::Values(Kept{"f16", "f16", 32}, Kept{"tq3_0", "tq3_0", 32},
                                         Kept{"kt4", "q8_0", 7}, Kept{"f16", "kt3", 100},
                                         Kept{"q4_0", "f16", 0}, Kept{"f16", "f16", 32, "tiny-moe"},
                                         Kept{"f16", "f16", 32, "tiny-chunks"},
                                         Kept{"kt4", "tq3_0", 20, "tiny-chunks"},
                                         Kept{"f16", "f16", 32, "tiny-latent"},
                                         Kept{"tq3_0", "tq3_0", 32, "tiny-latent"},
                                         Kept{"q8_0", "q8_0", 0, "tiny-latent"}));

}  // namespace
}  // namespace walsh
