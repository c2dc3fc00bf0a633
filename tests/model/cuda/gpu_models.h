// Loads models on the GPU, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../golden.h"
#include "../model_support.h"
#include "base/cuda/counted_memory.h"
#include "base/cuda/device.h"
#include "model/cuda/executor_memory.h"
#include "model/cuda/memory_plan.h"
#include "model/support.h"
#include "model/synthetic.h"
#include "threads.h"

namespace walsh::test {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto all = cuda::devices();
    if (all.empty()) GTEST_SKIP() << "no CUDA device: " << cuda::unavailable_reason();
    gpu_ = {true, all.front().index};
  }

  Model load(WeightSource& source, const Device& device,
             ActivationMode activations = ActivationMode::automatic, const CacheTypes& cache = {},
             bool rotate_weights = false) {
    LoadOptions options;
    options.rotate_weights = rotate_weights;
    options.pool = &pool_;
    options.activations = activations;
    options.device = device;
    options.cache = cache;
    return Model::load(source, parse_config(source.config_json(), source.path()), options);
  }

  // Returns whether no GPU computes layers of this kind; loading says so.
  bool refused(WeightSource& source) {
    const ModelConfig config = parse_config(source.config_json(), source.path());
    if (why_not(config, gpu_).empty()) return false;
    EXPECT_THROW(load(source, gpu_), Error) << source.path();
    return true;
  }

  // Returns logits behind the text, which follows what is there of the sequence.
  static std::vector<float> behind(Session& session, std::span<const int32_t> text,
                                   int64_t snapshot = -1, int64_t sequence = 0) {
    std::vector<float> result;
    const SequenceTokens item{sequence, text, 1, snapshot};
    session.evaluate({&item, 1}, [&](size_t, int64_t, std::span<const float> logits) {
      result.assign(logits.begin(), logits.end());
    });
    return result;
  }

  // Checks that the plan is what loading and a session take.
  void expect_planned_memory(WeightSource& source, const char* cache) {
    const ModelConfig config = parse_config(source.config_json(), source.path());
    LoadOptions options;
    options.pool = &pool_;
    options.device = gpu_;
    options.cache = {&get_cache_type(cache), &get_cache_type(cache), 32};
    options.use.max_positions = std::min<int64_t>(1024, config.max_positions);
    options.use.sequences = 3;
    const uint64_t free = cuda::use_device(gpu_.index).free_bytes;
    const MemoryPlan plan = plan_cuda_memory(source, config, options, free);
    const uint64_t before = cuda::allocated_bytes();
    const Model model = Model::load(source, config, options);
    const Session session(model, options.use);
    const auto taken = static_cast<double>(cuda::allocated_bytes() - before);
    const auto planned = static_cast<double>(plan.total() - kCudaReserve);
    EXPECT_LE(taken, static_cast<double>(plan.total())) << plan.text();
    EXPECT_NEAR(taken, planned, 0.01 * planned) << plan.text() << ", cache " << cache;
  }

  ThreadPool pool_{test::kThreads};
  Device gpu_;
};

inline std::string model_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

inline Rows logits_of(const Model& model, const std::vector<int32_t>& tokens) {
  Session session(model, {static_cast<int64_t>(tokens.size())});
  return all_logits(session, tokens);
}

// Returns the same token by token, as in generation; from the third token on recorded steps are
// replayed.
inline Rows decode(const Model& model, const std::vector<int32_t>& tokens) {
  Session session(model, {static_cast<int64_t>(tokens.size())});
  Rows rows;
  for (const int32_t token : tokens)
    rows.push_back(all_logits(session, {token}).back());
  return rows;
}

inline SyntheticSource synthetic(std::string_view type, std::string_view ends) {
  return SyntheticSource("tiny", {&get_format(type), &get_format(ends), &get_format(ends)});
}

// The matrices take the types in turn.
inline SyntheticSource synthetic_mix(const std::vector<std::string>& types) {
  SyntheticTypes all{&get_format(types[0]), &get_format("f16"), &get_format("f16"), {}};
  for (size_t i = 1; i < types.size(); ++i)
    all.others.push_back(&get_format(types[i]));
  return SyntheticSource("tiny", all);
}

}  // namespace walsh::test
