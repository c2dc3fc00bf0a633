// Models on the GPU, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
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

// Whose matrices take the types in turn.
inline SyntheticSource synthetic_mix(const std::vector<std::string>& types) {
  SyntheticTypes all{&get_format(types[0]), &get_format("f16"), &get_format("f16"), {}};
  for (size_t i = 1; i < types.size(); ++i)
    all.others.push_back(&get_format(types[i]));
  return SyntheticSource("tiny", all);
}

}  // namespace walsh::test
