// What is decided about a model on a GPU before anything is loaded; needs no device.
#include "model/cuda/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arch/plan.h"
#include "model/synthetic.h"

namespace walsh {
namespace {

void expect_refused(const SyntheticSource& source, const std::string& tensor,
                    const Format& format) {
  try {
    plan_cuda_memory(source, parse_config(source.config_json(), source.path()), {},
                     uint64_t{32} << 30);
    ADD_FAILURE() << "accepted: " << tensor << " in " << format.name;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_EQ(e.where(), source.path() + ": tensor " + tensor);
    EXPECT_EQ(e.reason(),
              "there are no GPU kernels for " + std::string(format.name) + ": use --device cpu");
  }
}

TEST(MemoryPlan, TrellisAndProductFormatsAreRefusedByTensorAndName) {
  const Format& dense = get_format("f16");
  const ModelConfig config =
      parse_config(SyntheticSource("tiny", {&dense, &dense, &dense}).config_json(), "tiny");
  for (const Format& format : all_formats()) {
    if (format.kind != CodeKind::trellis && format.kind != CodeKind::product) continue;
    expect_refused(SyntheticSource("tiny", {&format, &dense, &dense}),
                   config.layers[0].matrices[0].weight, format);
    expect_refused(SyntheticSource("tiny", {&dense, &format, &dense}), config.embedding, format);
    expect_refused(SyntheticSource("tiny", {&dense, &dense, &format}), config.head.weight, format);
  }
}

}  // namespace
}  // namespace walsh
