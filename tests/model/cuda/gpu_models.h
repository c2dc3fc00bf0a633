// Models on the GPU, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "../model_support.h"
#include "base/cuda/device.h"
#include "model/synthetic.h"

namespace walsh::test {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto all = cuda::devices();
    if (all.empty()) GTEST_SKIP() << "no CUDA device: " << cuda::unavailable_reason();
    gpu_ = {true, all.front().index};
  }

  Model load(WeightSource& source, const Device& device,
             ActivationMode activations = ActivationMode::automatic, const CacheTypes& cache = {}) {
    LoadOptions options;
    options.pool = &pool_;
    options.activations = activations;
    options.device = device;
    options.cache = cache;
    return Model::load(source, parse_config(source.config_json(), source.path()), options);
  }

  ThreadPool pool_{2};
  Device gpu_;
};

inline Rows logits_of(const Model& model, const std::vector<int32_t>& tokens) {
  Session session(model, {static_cast<int64_t>(tokens.size())});
  return all_logits(session, tokens);
}

// The same token by token, as generation does it; from the third on recorded steps are replayed.
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

}  // namespace walsh::test
