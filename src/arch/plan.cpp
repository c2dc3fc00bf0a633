#include "arch/plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace walsh {
namespace {

void add_name(const std::string& name, std::vector<std::string>& list) {
  if (!name.empty()) list.push_back(name);
}

void add_sites(const LayerDesc& layer, std::vector<Site>& sites) {
  const size_t first = sites.size();
  for (const ActivationDesc& a : layer.activations)
    sites.push_back({a.name, a.width, a.norm.weight, {}, a.feeder, {}});
  for (const MatrixDesc& m : layer.matrices) {
    Site& site = sites[first + static_cast<size_t>(m.input)];
    (m.plain ? site.plain : site.matrices).push_back(m.weight);
  }
}

void add_experts(const LayerDesc& layer, std::map<std::string, ExpertMatrix>& experts) {
  for (const MatrixDesc& m : layer.matrices) {
    if (m.expert < 0) continue;
    const std::string number = fmt::format(".{}.", m.expert);
    const size_t at = m.weight.rfind(number);
    experts[m.weight] = {m.expert,
                         m.weight.substr(0, at) + ".*." + m.weight.substr(at + number.size())};
  }
}

// Adds the names of everything that is not a matrix, in the order of the file: gains, biases of
// matrices, others.
void add_vectors(const LayerDesc& layer, std::vector<std::string>& vectors) {
  const std::vector<VectorDesc> own = layer_vectors(layer);
  for (const VectorDesc& v : own)
    if (v.is_gain) vectors.push_back(v.name);
  for (const MatrixDesc& m : layer.matrices)
    add_name(m.bias, vectors);
  for (const VectorDesc& v : own)
    if (!v.is_gain && v.form != VectorDesc::Form::constant) vectors.push_back(v.name);
}

// Returns why no rotation can be folded into the residual stream; empty if one can.
std::string residual_refusal(const ModelConfig& c) {
  // The smallest block of the rotation has 32 columns. Padding is not possible, because it would
  // change the norm of the residual stream.
  constexpr int64_t kSmallestBlock = 32;
  if (c.hidden % kSmallestBlock != 0)
    return "the hidden size " + std::to_string(c.hidden) + " is not a multiple of 32";
  if (c.head_input.norm.centered)
    return "its norms take the mean of the residual stream away, which a rotation changes";
  for (const LayerDesc& layer : c.layers) {
    if (layer.after_attention.present() || layer.after_mlp.present())
      return "its blocks have norms after them, whose gains a rotation does not pass";
  }
  return "";
}

void add_folded(const LayerDesc& layer, ResidualPlan& plan) {
  std::string heads;  // It names the activation whose basis is Basis::heads.
  for (const ActivationDesc& a : layer.activations) {
    if (a.basis == Basis::heads) heads = a.name;
    if (a.basis == Basis::residual) add_name(a.norm.weight, plan.norms);
  }
  for (const MatrixDesc& m : layer.matrices) {
    const ActivationDesc& input = layer.input_of(m);
    const std::string gain = input.basis == Basis::residual ? input.norm.weight : "";
    if (m.outputs == Basis::own && input.basis == Basis::own) continue;
    plan.tensors.push_back({m.weight, m.weight, gain, m.outputs, input.basis, heads});
    if (!m.bias.empty() && m.outputs != Basis::own)
      plan.tensors.push_back({m.bias, m.bias, "", Basis::own, m.outputs, heads});
  }
}

ResidualPlan residual_plan(const ModelConfig& c) {
  ResidualPlan plan;
  plan.refusal = residual_refusal(c);
  plan.hidden = c.hidden;
  for (const LayerDesc& layer : c.layers) {
    const AttentionDesc& a = layer.attention;
    if (!a.present()) continue;
    const bool first = plan.kv_heads == 0;
    if (!first && (a.head_dim != plan.head_dim || a.kv_heads != plan.kv_heads))
      plan.refusal = "its layers have heads of different kinds";
    plan.head_dim = a.head_dim;
    plan.kv_heads = a.kv_heads;
  }
  plan.head = c.head_name;
  plan.tensors.push_back({c.embedding, c.embedding, "", Basis::own, Basis::residual});
  plan.tensors.push_back(
      {c.head_name, c.head.weight, c.head_input.norm.weight, Basis::own, Basis::residual});
  for (const LayerDesc& layer : c.layers)
    add_folded(layer, plan);
  plan.norms.push_back(c.head_input.norm.weight);
  return plan;
}

}  // namespace

ModelPlan make_plan(const ModelConfig& c) {
  ModelPlan plan;
  plan.embedding = c.embedding;
  plan.layer_embedding = c.layer_embedding.weight;
  plan.final_norm = c.head_input.norm.weight;
  plan.gain_offset = c.head_input.norm.gain_offset;
  plan.ignored = c.ignored;
  if (c.tied_head) {
    plan.ignored.push_back(c.head_name);
  } else {
    plan.head = c.head.weight;
  }
  for (const std::string& name : {c.embedding, c.head_name, c.head.weight})
    if (!name.empty()) plan.shapes[name] = {c.vocab, c.hidden};
  if (c.layer_embedding.present())
    plan.shapes[plan.layer_embedding] = {c.vocab, c.layer_embedding.cols};
  const auto add = [&](const LayerDesc& layer, std::vector<Site>& sites,
                       std::vector<std::string>& vectors) {
    for (const MatrixDesc& m : layer.matrices)
      plan.shapes[m.weight] = {m.rows, m.cols};
    add_sites(layer, sites);
    add_vectors(layer, vectors);
    add_experts(layer, plan.experts);
  };
  for (const LayerDesc& layer : c.layers)
    add(layer, plan.sites, plan.vectors);
  for (const LayerDesc& layer : c.ahead.layer) {
    add(layer, plan.ahead, plan.ahead_vectors);
    plan.ahead_vectors.push_back(c.ahead.norm.weight);
    plan.ahead_join = layer.matrix(layer.join.project).weight;
  }
  plan.vectors.push_back(plan.final_norm);
  plan.residual = residual_plan(c);
  plan.parts = c.parts;
  plan.stored_names = c.stored_names;
  plan.whole = c.whole;
  plan.left_out = c.left_out;
  plan.stored = c.stored;
  return plan;
}

ModelPlan read_plan(std::string_view config_json, std::string_view where) {
  return make_plan(parse_config(config_json, where));
}

}  // namespace walsh
