#include "schedule/memory_plan.h"

#include <gtest/gtest.h>

#include "weights/open.h"

namespace walsh {
namespace {

uint64_t planned(const std::string& model, int64_t running) {
  const auto source = open_stored(std::string(WALSH_TEST_DATA) + "/models/" + model);
  SchedulerOptions options;
  options.running = running;
  options.kept = 0;
  options.share_prefixes = false;
  options.positions = 64;
  options.cache_positions = 64;  // so that only states differ
  return planned_bytes(*source, read_config(*source), {}, options);
}

TEST(MemoryPlan, CountsTheStatesOfEverySequence) {
  EXPECT_EQ(planned("llama31-tiny", 3), planned("llama31-tiny", 1));
  for (const char* model : {"qwen35-tiny", "lfm2-tiny", "granite-hybrid-tiny"}) {
    const uint64_t one = planned(model, 1);
    EXPECT_GT(planned(model, 2), one) << model;
    EXPECT_EQ(planned(model, 3) - one, 2 * (planned(model, 2) - one)) << model;
  }
}

}  // namespace
}  // namespace walsh
