// Tests decisions about a model on a GPU before anything is loaded.
#include "model/cuda/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arch/plan.h"
#include "base/cuda/counted_memory.h"
#include "codec/kernels.h"
#include "gpu_models.h"
#include "kernels/cuda/weights/matrix.h"
#include "model/cuda/executor_memory.h"
#include "model/synthetic.h"

namespace walsh {
namespace {

constexpr Device kGpu{true, 0};

// A format has kernels if and only if it has a decoder and a layout.
TEST(GpuSupport, IsWhatKernelsDecode) {
  for (const Format& format : all_formats()) {
    if (format.dense) continue;
    const bool said = why_not(kGpu, format).empty();
    for (int pass = 0; pass < format.passes; ++pass) {
      bool packs = true;
      try {
        const cuda::CountedMemory counted;
        cuda::allocate_matrix(format, pass, 48, 352);
        packs = counted.bytes() > 0;
      } catch (const Error&) {
        packs = false;
      }
      EXPECT_EQ(packs, said) << format.name << " pass " << pass;
    }
  }
}

TEST(MemoryPlan, AsksWhetherThereAreKernelsBeforeItCounts) {
  const Format &dense = get_format("f16"), &trellis = get_format("tc3:hq");
  SyntheticSource source("tiny", {&dense, &dense, &trellis});
  LoadOptions options;
  options.device = kGpu;
  try {
    plan_cuda_memory(source, parse_config(source.config_json(), source.path()), options, 1);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_THAT(e.reason(), testing::HasSubstr("tc3:hq"));
  }
}

class GpuPlan : public test::GpuTest {};

TEST_F(GpuPlan, TakesNothingAndGrowsWithWhatIsAskedFor) {
  const Format& format = get_format("tq3");
  SyntheticSource source("1b", {&format, &format, &format});
  const ModelConfig config = parse_config(source.config_json(), source.path());
  LoadOptions options;
  options.device = kGpu;
  options.use.max_positions = 2048;
  const auto plan = [&] { return plan_cuda_memory(source, config, options, uint64_t{64} << 30); };
  const uint64_t before = cuda::allocated_bytes();
  const MemoryPlan one = plan();
  EXPECT_EQ(cuda::allocated_bytes(), before) << "nothing is taken";
  EXPECT_EQ(one.max_rows, 2048);
  uint64_t width = 0;
  for (const LayerDesc& layer : config.layers)
    width += static_cast<uint64_t>(layer.attention.kv_width());
  EXPECT_NEAR(static_cast<double>(one.cache), static_cast<double>(2048 * width * 4),
              0.05 * static_cast<double>(one.cache));
  options.use.sequences = 4;
  EXPECT_GT(plan().cache, 7 * one.cache / 2);
  options.cache = {&get_cache_type("tq3_0"), &get_cache_type("tq3_0"), 32};
  EXPECT_LT(plan().cache, 2 * one.cache);
  options.use.cache_positions = 2048;
  const uint64_t small = plan().cache;
  options.use.cache_positions = 0;
  EXPECT_LT(small, plan().cache);
}

struct Planned {
  const char *type, *ends, *cache;
};

class GpuMemoryPlan : public test::GpuTest, public testing::WithParamInterface<Planned> {};

TEST_P(GpuMemoryPlan, IsWhatIsTaken) {
  const Format &type = get_format(GetParam().type), &ends = get_format(GetParam().ends);
  SyntheticSource source("1b", {&type, &ends, &ends});
  expect_planned_memory(source, GetParam().cache);
}

// There is one of each family that GPUs run; mixed, the plan also counts what formats do not share.
class GpuMemoryPlanOfAFamily : public test::GpuTest,
                               public testing::WithParamInterface<std::string> {};

TEST_P(GpuMemoryPlanOfAFamily, IsWhatIsTaken) {
  const std::string folder = test::model_folder(GetParam());
  if (folder.empty()) GTEST_SKIP() << GetParam() << " is not here";
  CheckpointSource source = CheckpointSource::open(folder);
  if (refused(source)) return;
  expect_planned_memory(source, "f16");
  const ModelConfig config = parse_config(source.config_json(), source.path());
  const CacheType& coded = get_cache_type("tq3_0");
  if (why_not_on_gpus({&coded, &coded, 32}, widest(config).head_dim).empty())
    expect_planned_memory(source, "tq3_0");
}

INSTANTIATE_TEST_SUITE_P(Models, GpuMemoryPlanOfAFamily, testing::ValuesIn(test::tiny_models()),
                         test::model_name);

INSTANTIATE_TEST_SUITE_P(Kinds, GpuMemoryPlan,
                         testing::Values(Planned{"tq3", "tq4", "f16"},
                                         Planned{"itq3_s", "f16", "tq3_0"},
                                         Planned{"tq4+4", "q8_0", "kt4"},
                                         Planned{"f16", "f16", "f16"},
                                         Planned{"pq3", "pq3", "f16"}));

}  // namespace
}  // namespace walsh
