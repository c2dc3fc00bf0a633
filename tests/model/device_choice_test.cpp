// Tests the choice of a device for a model with `--device auto`.
#include <gtest/gtest.h>

#include "base/cuda/first_device.h"
#include "model/synthetic.h"
#include "model_support.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// A trellis format has no GPU kernels; without a GPU, that it is not there is reason enough.
TEST(DeviceChoice, WhatAGpuRefusesIsComputedByTheCpuWithANote) {
  const Format& trellis = get_format("tc3:hq");
  SyntheticSource source("tiny", {&trellis, &trellis, &trellis});
  const ModelConfig config = parse_config(source.config_json(), "tiny");
  ThreadPool pool(1);
  LoadOptions options;
  options.pool = &pool;
  options.device = {true, cuda::first_device().value_or(0)};
  EXPECT_THROW(Model::load(source, config, options), Error);
  options.may_use_cpu = true;
  const Model model = Model::load(source, config, options);
  EXPECT_EQ(model.device, Device{});
  EXPECT_NE(model.device_note.find("cannot be used, so the model runs on the CPU"),
            std::string::npos);
  Session session(model, {8});
  EXPECT_EQ(test::all_logits(session, {1, 2, 3}).size(), 3u);
}

TEST(DeviceChoice, WhatIsWrongWithAModelIsNoReasonForAnotherDevice) {
  const Format& type = get_format("f32");
  SyntheticSource source("tiny", {&type, &type, &type});
  ModelConfig config = parse_config(source.config_json(), "tiny");
  config.layers[0].matrices[0].weight = "absent";
  ThreadPool pool(1);
  LoadOptions options;
  options.pool = &pool;
  options.device = {false, 0};
  options.may_use_cpu = true;
  EXPECT_THROW(Model::load(source, config, options), Error);
}

}  // namespace
}  // namespace walsh
