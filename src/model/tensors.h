// Every tensor of a model by name and shape, and the plan that the quantizer works from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "rotate/plan.h"

namespace walsh {

struct TensorShape {
  std::string name;
  int64_t rows = 1;  // 1 for vectors
  int64_t cols = 0;
};

// Names in the order of a layer's computation. Biases and norms that the model lacks are empty.
struct LayerNames {
  std::string attention_norm, q, k, v, o;
  std::string q_bias, k_bias, v_bias, o_bias, q_norm, k_norm;
  std::string mlp_norm, gate, up, down;
  std::string gate_bias, up_bias, down_bias;
};

struct ModelNames {
  std::string embedding, final_norm;
  std::string head;  // also named when tied
  std::vector<LayerNames> layers;
};

ModelNames model_names(const ModelConfig& config);

// All tensors that the config asks for, embedding first; a tied model has no head.
std::vector<TensorShape> model_tensors(const ModelConfig& config);

// Sites per layer in this order: attention input, o input, MLP input, down input.
ModelPlan make_plan(const ModelConfig& config);
// The same from config.json's text: the PlanReader of quantize/open.h. Throws as parse_config.
ModelPlan read_plan(std::string_view config_json, std::string_view where);

}  // namespace walsh
