#include "arch/decoder.h"

#include <cmath>
#include <string>

namespace walsh {
namespace {

class LayerBuilder {
 public:
  LayerBuilder(const DecoderTraits& traits, const LayerTraits& layer, size_t index,
               ModelConfig& config)
      : traits_(traits),
        names_(traits.names),
        own_(layer),
        index_(std::to_string(index)),
        config_(config) {}

  LayerDesc build() {
    add_attention();
    add_mlp();
    if (traits_.norms_after) {
      layer_.after_attention = norm(names_.after_attention_norm, config_.hidden);
      layer_.after_mlp = norm(names_.after_mlp_norm, config_.hidden);
    }
    layer_.branch_scale = traits_.branch_scale;
    return std::move(layer_);
  }

 private:
  std::string weight(std::string_view name) const {
    return std::string(names_.layers) + index_ + "." + std::string(name) + ".weight";
  }

  NormDesc norm(std::string_view name, int64_t width) const {
    if (name.empty()) return {};
    return {weight(name), width, traits_.norm_eps, traits_.gain_offset};
  }

  int activation(const char* name, int64_t width, NormDesc norm, Basis basis, Feeder feeder = {}) {
    layer_.activations.push_back(
        {"layers." + index_ + "." + name, width, std::move(norm), basis, std::move(feeder)});
    return static_cast<int>(layer_.activations.size()) - 1;
  }

  int matrix(std::string_view name, bool bias, int64_t rows, int input, Basis outputs) {
    MatrixDesc m;
    m.weight = weight(name);
    if (bias) m.bias = std::string(names_.layers) + index_ + "." + std::string(name) + ".bias";
    m.rows = rows;
    m.cols = layer_.activations[static_cast<size_t>(input)].width;
    m.input = input;
    m.outputs = outputs;
    layer_.matrices.push_back(std::move(m));
    return static_cast<int>(layer_.matrices.size()) - 1;
  }

  // Says that the checkpoint has these matrices below each other in one tensor.
  void stack(std::string_view name, std::initializer_list<int> matrices) {
    if (name.empty()) return;
    int64_t first = 0;
    for (const int index : matrices) {
      const MatrixDesc& m = layer_.matrix(index);
      config_.parts.push_back({m.weight, weight(name), first, m.rows, 0, 0});
      first += m.rows;
    }
  }

  // Says that the checkpoint has the rows that are rotated together side by side.
  void pair_rows(const MatrixDesc& m) {
    const RopeConfig& rope = config_.ropes[static_cast<size_t>(own_.rope)];
    const auto turned = static_cast<int64_t>(static_cast<double>(own_.head_dim) * rope.share);
    config_.parts.push_back({m.weight, m.weight, 0, m.rows, turned, own_.head_dim});
    if (!m.bias.empty())
      config_.parts.push_back({m.bias, m.bias, 0, m.rows, turned, own_.head_dim});
  }

  // The feeder of an activation whose values come from the rows of a matrix.
  static Feeder feeder(const MatrixDesc& m, int64_t dim, int64_t repeat) {
    return {m.weight, m.bias, dim, repeat};
  }

  void add_attention() {
    AttentionDesc& a = layer_.attention;
    a.heads = own_.heads;
    a.kv_heads = own_.kv_heads;
    a.head_dim = own_.head_dim;
    a.rope = own_.rope;
    a.window = own_.window;
    a.logit_cap = own_.logit_cap;
    a.scale = own_.attention_scale != 0 ? own_.attention_scale
                                        : 1.0f / std::sqrt(static_cast<float>(own_.head_dim));
    if (traits_.qk_norm) {
      a.q_norm = norm(names_.q_norm, traits_.qk_norm_of_all ? a.query_width() : a.head_dim);
      a.k_norm = norm(names_.k_norm, traits_.qk_norm_of_all ? a.kv_width() : a.head_dim);
    }
    const int input = activation("attention", config_.hidden,
                                 norm(names_.attention_norm, config_.hidden), Basis::residual);
    a.q = matrix(names_.q, traits_.qkv_bias, a.query_width(), input, Basis::own);
    a.k = matrix(names_.k, traits_.qkv_bias, a.kv_width(), input, Basis::own);
    a.v = matrix(names_.v, traits_.qkv_bias, a.kv_width(), input, Basis::heads);
    stack(names_.qkv, {a.q, a.k, a.v});
    if (traits_.paired_rope && a.rope >= 0) {
      pair_rows(layer_.matrix(a.q));
      pair_rows(layer_.matrix(a.k));
    }
    const int attended = activation("o", a.query_width(), {}, Basis::heads,
                                    feeder(layer_.matrix(a.v), a.head_dim, a.heads / a.kv_heads));
    a.o = matrix(names_.o, traits_.o_bias, config_.hidden, attended, Basis::residual);
  }

  void add_mlp() {
    MlpDesc& mlp = layer_.mlp;
    mlp.width = own_.intermediate;
    mlp.function = traits_.gate_function;
    const int input =
        activation("mlp", config_.hidden, norm(names_.mlp_norm, config_.hidden), Basis::residual);
    mlp.gate = matrix(names_.gate, traits_.mlp_bias, mlp.width, input, Basis::own);
    mlp.up = matrix(names_.up, traits_.mlp_bias, mlp.width, input, Basis::own);
    stack(names_.gate_up, {mlp.gate, mlp.up});
    const int gated =
        activation("down", mlp.width, {}, Basis::own, feeder(layer_.matrix(mlp.up), mlp.width, 1));
    mlp.down = matrix(names_.down, traits_.mlp_bias, config_.hidden, gated, Basis::residual);
  }

  const DecoderTraits& traits_;
  const TensorNames& names_;
  const LayerTraits& own_;
  std::string index_;
  ModelConfig& config_;
  LayerDesc layer_;
};

}  // namespace

void build_layers(const DecoderTraits& traits, ModelConfig& config) {
  const TensorNames& names = traits.names;
  for (size_t i = 0; i < traits.layers.size(); ++i)
    config.layers.push_back(LayerBuilder(traits, traits.layers[i], i, config).build());
  config.embedding = names.embedding;
  config.head_name = names.head;
  config.head_input = {
      "head",
      config.hidden,
      {std::string(names.final_norm), config.hidden, traits.norm_eps, traits.gain_offset},
      Basis::residual};
  config.head.weight = config.tied_head ? config.embedding : config.head_name;
  config.head.rows = config.vocab;
  config.head.cols = config.hidden;
  // Old checkpoints store the rope frequencies, which follow from the config.
  config.ignored.push_back("model.rotary_emb.inv_freq");
  for (size_t i = 0; i < traits.layers.size(); ++i) {
    config.ignored.push_back(std::string(names.layers) + std::to_string(i) +
                             ".self_attn.rotary_emb.inv_freq");
  }
}

}  // namespace walsh
