#include "model/tensors.h"

#include "model/family.h"

namespace walsh {
namespace {

constexpr size_t kLayerSites = 4;  // of make_plan, the input of o being the second
constexpr size_t kOutputSite = 1;

LayerNames layer_names(const TensorNames& names, const ModelConfig& config, int64_t index) {
  const std::string prefix = std::string(names.layers) + std::to_string(index) + ".";
  const auto weight = [&](std::string_view name) { return prefix + std::string(name) + ".weight"; };
  const auto bias = [&](bool present, std::string_view name) {
    return present ? prefix + std::string(name) + ".bias" : std::string();
  };
  LayerNames layer;
  layer.attention_norm = weight(names.attention_norm);
  layer.q = weight(names.q);
  layer.k = weight(names.k);
  layer.v = weight(names.v);
  layer.o = weight(names.o);
  layer.q_bias = bias(config.qkv_bias, names.q);
  layer.k_bias = bias(config.qkv_bias, names.k);
  layer.v_bias = bias(config.qkv_bias, names.v);
  layer.o_bias = bias(config.o_bias, names.o);
  if (config.qk_norm) {
    layer.q_norm = weight(names.q_norm);
    layer.k_norm = weight(names.k_norm);
  }
  layer.mlp_norm = weight(names.mlp_norm);
  layer.gate = weight(names.gate);
  layer.up = weight(names.up);
  layer.down = weight(names.down);
  layer.gate_bias = bias(config.mlp_bias, names.gate);
  layer.up_bias = bias(config.mlp_bias, names.up);
  layer.down_bias = bias(config.mlp_bias, names.down);
  return layer;
}

void add_layer_vectors(const ModelConfig& c, const LayerNames& layer,
                       std::vector<TensorShape>& list) {
  const auto add = [&](const std::string& name, int64_t cols) {
    if (!name.empty()) list.push_back({name, 1, cols});
  };
  add(layer.attention_norm, c.hidden);
  add(layer.q_bias, c.query_width());
  add(layer.k_bias, c.kv_width());
  add(layer.v_bias, c.kv_width());
  add(layer.q_norm, c.head_dim);
  add(layer.k_norm, c.head_dim);
  add(layer.o_bias, c.hidden);
  add(layer.mlp_norm, c.hidden);
  add(layer.gate_bias, c.intermediate);
  add(layer.up_bias, c.intermediate);
  add(layer.down_bias, c.hidden);
}

// Old checkpoints store the rope frequencies, which follow from the config.
void add_rotary_buffers(const ModelConfig& c, std::vector<std::string>& list) {
  const std::string prefix(find_family(c.family)->names->layers);
  list.push_back("model.rotary_emb.inv_freq");
  for (int64_t i = 0; i < c.layers; ++i)
    list.push_back(prefix + std::to_string(i) + ".self_attn.rotary_emb.inv_freq");
}

// Blocks of the rotation reach down to 32 columns, and a padded residual stream would change its
// norm.
std::string residual_refusal(const ModelConfig& c) {
  constexpr int64_t kSmallestBlock = 32;
  if (c.hidden % kSmallestBlock == 0) return "";
  return "the hidden size " + std::to_string(c.hidden) + " is not a multiple of 32";
}

void add_folded_layer(const LayerNames& layer, int o_site, ResidualPlan& plan) {
  const auto add = [&](const std::string& name, const std::string& gain, Basis rows, Basis cols) {
    if (!name.empty()) plan.tensors.push_back({name, name, gain, rows, cols, o_site});
  };
  for (const std::string* name : {&layer.q, &layer.k})
    add(*name, layer.attention_norm, Basis::own, Basis::residual);
  add(layer.v, layer.attention_norm, Basis::heads, Basis::residual);
  add(layer.v_bias, "", Basis::own, Basis::heads);
  add(layer.o, "", Basis::residual, Basis::heads);
  add(layer.o_bias, "", Basis::own, Basis::residual);
  for (const std::string* name : {&layer.gate, &layer.up})
    add(*name, layer.mlp_norm, Basis::own, Basis::residual);
  add(layer.down, "", Basis::residual, Basis::own);
  add(layer.down_bias, "", Basis::own, Basis::residual);
  plan.norms.insert(plan.norms.end(), {layer.attention_norm, layer.mlp_norm});
}

// Every family here has RMSNorms in front of its blocks and nothing but the blocks' outputs added
// to the stream, so the rotation passes through. A norm behind a block would not let it.
ResidualPlan residual_plan(const ModelConfig& c, const ModelNames& names) {
  ResidualPlan plan;
  plan.refusal = residual_refusal(c);
  plan.hidden = c.hidden;
  plan.head_dim = c.head_dim;
  plan.kv_heads = c.kv_heads;
  plan.head = names.head;
  plan.tensors.push_back({names.embedding, names.embedding, "", Basis::own, Basis::residual, -1});
  plan.tensors.push_back({names.head, c.tied_head ? names.embedding : names.head, names.final_norm,
                          Basis::own, Basis::residual, -1});
  for (size_t i = 0; i < names.layers.size(); ++i)
    add_folded_layer(names.layers[i], static_cast<int>(kLayerSites * i + kOutputSite), plan);
  plan.norms.push_back(names.final_norm);
  return plan;
}

}  // namespace

ModelNames model_names(const ModelConfig& config) {
  const Family* family = find_family(config.family);
  if (family == nullptr) {
    throw Error(ErrorCode::usage, config.family, "not a known model family");
  }
  const TensorNames& names = *family->names;
  ModelNames result;
  result.embedding = names.embedding;
  result.final_norm = names.final_norm;
  result.head = names.head;
  for (int64_t i = 0; i < config.layers; ++i)
    result.layers.push_back(layer_names(names, config, i));
  return result;
}

std::vector<TensorShape> model_tensors(const ModelConfig& c) {
  const ModelNames names = model_names(c);
  std::vector<TensorShape> list;
  list.push_back({names.embedding, c.vocab, c.hidden});
  for (const LayerNames& layer : names.layers) {
    add_layer_vectors(c, layer, list);
    list.push_back({layer.q, c.query_width(), c.hidden});
    list.push_back({layer.k, c.kv_width(), c.hidden});
    list.push_back({layer.v, c.kv_width(), c.hidden});
    list.push_back({layer.o, c.hidden, c.query_width()});
    list.push_back({layer.gate, c.intermediate, c.hidden});
    list.push_back({layer.up, c.intermediate, c.hidden});
    list.push_back({layer.down, c.hidden, c.intermediate});
  }
  list.push_back({names.final_norm, 1, c.hidden});
  if (!c.tied_head) list.push_back({names.head, c.vocab, c.hidden});
  return list;
}

ModelPlan make_plan(const ModelConfig& c) {
  const ModelNames names = model_names(c);
  ModelPlan plan;
  plan.embedding = names.embedding;
  plan.final_norm = names.final_norm;
  if (c.tied_head) {
    plan.ignored.push_back(names.head);
  } else {
    plan.head = names.head;
  }
  std::vector<TensorShape> vectors;
  for (size_t i = 0; i < names.layers.size(); ++i) {
    const LayerNames& layer = names.layers[i];
    const std::string prefix = "layers." + std::to_string(i) + ".";
    plan.sites.push_back(
        {prefix + "attention", c.hidden, layer.attention_norm, {layer.q, layer.k, layer.v}});
    plan.sites.push_back({prefix + "o",
                          c.query_width(),
                          "",
                          {layer.o},
                          {layer.v, layer.v_bias, c.head_dim, c.heads / c.kv_heads}});
    plan.sites.push_back({prefix + "mlp", c.hidden, layer.mlp_norm, {layer.gate, layer.up}});
    plan.sites.push_back({prefix + "down",
                          c.intermediate,
                          "",
                          {layer.down},
                          {layer.up, layer.up_bias, c.intermediate, 1}});
    add_layer_vectors(c, layer, vectors);
  }
  add_rotary_buffers(c, plan.ignored);
  for (const TensorShape& vector : vectors)
    plan.vectors.push_back(vector.name);
  plan.vectors.push_back(names.final_norm);
  plan.residual = residual_plan(c, names);
  return plan;
}

ModelPlan read_plan(std::string_view config_json, std::string_view where) {
  return make_plan(parse_config(config_json, where));
}

}  // namespace walsh
