// What is decided about a model on a GPU before anything is loaded; needs no device.
#include "model/cuda/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arch/plan.h"
#include "formats/codec.h"
#include "kernels/cuda/weights/matrix.h"
#include "model/synthetic.h"

namespace walsh {
namespace {

constexpr Device kGpu{true, 0};

// What is said to have kernels has a decoder and a layout, and nothing else has.
TEST(GpuSupport, IsWhatKernelsDecode) {
  for (const Format& format : all_formats()) {
    if (format.dense) continue;
    const bool said = why_not(kGpu, format).empty();
    for (int pass = 0; pass < format.passes; ++pass) {
      bool packs = true;
      try {
        packs = cuda::matrix_bytes(format, pass, 48, 352) > 0;
      } catch (const Error&) {
        packs = false;
      }
      EXPECT_EQ(packs, said) << format.name << " pass " << pass;
    }
  }
}

TEST(MemoryPlan, AsksWhetherThereAreKernelsBeforeItCounts) {
  const Format &dense = get_format("f16"), &trellis = get_format("tc3");
  SyntheticSource source("tiny", {&dense, &dense, &trellis});
  LoadOptions options;
  options.device = kGpu;
  try {
    plan_cuda_memory(source, parse_config(source.config_json(), source.path()), options, 1);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_THAT(e.reason(), testing::HasSubstr("tc3"));
  }
}

}  // namespace
}  // namespace walsh
