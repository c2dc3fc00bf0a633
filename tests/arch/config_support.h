// Gives a config.json to modify, and helpers for the description made from it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arch/config.h"
#include "walsh/error.h"

namespace walsh::test {

using Json = nlohmann::json;

inline Json llama() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "bos_token_id": 1, "eos_token_id": [2, 3], "tie_word_embeddings": true,
    "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
    "torch_dtype": "bfloat16", "pretraining_tp": 1, "use_cache": true})");
}

inline Json of_family(const char* type, const char* architecture) {
  Json json = llama();
  json["model_type"] = type;
  json["architectures"] = {architecture};
  return json;
}

inline ModelConfig parse(const Json& json) {
  return parse_config(json.dump(), "config.json");
}

inline std::vector<int64_t> windows(const ModelConfig& config) {
  std::vector<int64_t> list;
  for (const LayerDesc& layer : config.layers)
    list.push_back(layer.attention.window);
  return list;
}

inline std::vector<int> ropes(const ModelConfig& config) {
  std::vector<int> list;
  for (const LayerDesc& layer : config.layers)
    list.push_back(layer.attention.rope);
  return list;
}

inline bool has_bias(const ModelConfig& config, int matrix) {
  return !config.layers.front().matrix(matrix).bias.empty();
}

inline void expect_refused(const Json& json, const std::string& part) {
  try {
    parse(json);
    FAIL() << "accepted, expected an error with: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_THAT(e.what(), testing::HasSubstr("config.json"));
    EXPECT_THAT(e.what(), testing::HasSubstr(part));
  }
}

}  // namespace walsh::test
