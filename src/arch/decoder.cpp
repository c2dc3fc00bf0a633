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
    if (own_.recurrent) {
      add_delta_net();
    } else {
      add_attention();
    }
    add_feed_forward();
    if (traits_.norms_after) {
      layer_.after_attention = norm(names_.after_attention_norm, config_.hidden);
      layer_.after_mlp = norm(names_.after_mlp_norm, config_.hidden);
    }
    layer_.branch_scale = traits_.branch_scale;
    return std::move(layer_);
  }

 private:
  std::string of_layer(std::string_view name) const {
    return std::string(names_.layers) + index_ + "." + std::string(name);
  }
  std::string weight(std::string_view name) const { return of_layer(name) + ".weight"; }

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
    if (bias) m.bias = of_layer(name) + ".bias";
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
    if (traits_.sinks)
      a.sinks = std::string(names_.layers) + index_ + "." + std::string(names_.sinks);
    if (traits_.qk_norm) {
      a.q_norm = norm(names_.q_norm, traits_.qk_norm_of_all ? a.query_width() : a.head_dim);
      a.k_norm = norm(names_.k_norm, traits_.qk_norm_of_all ? a.kv_width() : a.head_dim);
    }
    const int input = activation("attention", config_.hidden,
                                 norm(names_.attention_norm, config_.hidden), Basis::residual);
    a.gated = traits_.attention_gate;
    // A rotation of a head's values does not pass the gates, which multiply them one by one.
    const Basis values = a.gated ? Basis::own : Basis::heads;
    a.q = matrix(names_.q, traits_.qkv_bias, a.query_rows(), input, Basis::own);
    a.k = matrix(names_.k, traits_.qkv_bias, a.kv_width(), input, Basis::own);
    a.v = matrix(names_.v, traits_.qkv_bias, a.kv_width(), input, values);
    stack(names_.qkv, {a.q, a.k, a.v});
    if (traits_.paired_rope && a.rope >= 0) {
      pair_rows(layer_.matrix(a.q));
      pair_rows(layer_.matrix(a.k));
    }
    const int attended = activation("o", a.query_width(), {}, values,
                                    feeder(layer_.matrix(a.v), a.head_dim, a.heads / a.kv_heads));
    a.o = matrix(names_.o, traits_.o_bias, config_.hidden, attended, Basis::residual);
  }

  void add_delta_net() {
    const DeltaNetTraits& t = traits_.delta_net;
    DeltaNetDesc& d = layer_.delta_net;
    d.key_heads = t.key_heads;
    d.value_heads = t.value_heads;
    d.key_dim = t.key_dim;
    d.value_dim = t.value_dim;
    d.taps = t.taps;
    d.convolution = weight(names_.convolution);
    d.rate = of_layer(names_.delta_rate);
    d.bias = of_layer(names_.delta_bias);
    d.norm = {weight(names_.delta_norm), d.value_dim, traits_.norm_eps, 0};
    const int input = activation("attention", config_.hidden,
                                 norm(names_.attention_norm, config_.hidden), Basis::residual);
    d.qkv = matrix(names_.delta_qkv, false, d.channels(), input, Basis::own);
    d.z = matrix(names_.delta_z, false, d.value_width(), input, Basis::own);
    d.b = matrix(names_.delta_b, false, d.value_heads, input, Basis::own);
    d.a = matrix(names_.delta_a, false, d.value_heads, input, Basis::own);
    layer_.matrices[static_cast<size_t>(d.b)].plain = true;
    layer_.matrices[static_cast<size_t>(d.a)].plain = true;
    // The norm in front of it has one gain for all heads, so that no feeder can be scaled.
    const int gated = activation("o", d.value_width(), {}, Basis::own);
    d.o = matrix(names_.delta_o, false, config_.hidden, gated, Basis::residual);
    if (!names_.delta_qkvz.empty()) describe_delta_parts(d);
  }

  // For each key head the rows of its query, its key, the values and the gates; b and a likewise.
  void describe_delta_parts(const DeltaNetDesc& d) {
    const int64_t heads = d.key_heads, group = d.group();
    const int64_t key = d.key_dim, value = group * d.value_dim, step = 2 * (key + value);
    const auto add = [&](int matrix, std::string_view source, int64_t rows,
                         std::vector<TensorPart::RowGroups> groups) {
      const MatrixDesc& m = layer_.matrix(matrix);
      TensorPart part;
      part.name = m.weight;
      part.source = weight(source);
      part.shape = {rows, m.cols};
      part.rows = m.rows;
      part.cols = m.cols;
      part.groups = std::move(groups);
      config_.parts.push_back(std::move(part));
    };
    add(d.qkv, names_.delta_qkvz, heads * step,
        {{0, key, step, heads}, {key, key, step, heads}, {2 * key, value, step, heads}});
    add(d.z, names_.delta_qkvz, heads * step, {{2 * key + value, value, step, heads}});
    add(d.b, names_.delta_ba, 2 * d.value_heads, {{0, group, 2 * group, heads}});
    add(d.a, names_.delta_ba, 2 * d.value_heads, {{group, group, 2 * group, heads}});
  }

  void add_feed_forward() {
    layer_.mlp.function = traits_.gate_function;
    layer_.mlp.slope = traits_.gate_slope;
    layer_.mlp.limit = traits_.gate_limit;
    const int input =
        activation("mlp", config_.hidden, norm(names_.mlp_norm, config_.hidden), Basis::residual);
    if (!own_.experts) {
      add_mlp(input, own_.intermediate, names_.gate, names_.up, names_.down);
      stack(names_.gate_up, {layer_.mlp.gate, layer_.mlp.up});
      return;
    }
    add_experts(input);
    if (own_.shared == 0) return;
    const auto name = [&](const char* part) { return std::string(names_.shared) + part; };
    add_mlp(input, own_.shared, name("gate_proj"), name("up_proj"), name("down_proj"));
  }

  void add_mlp(int input, int64_t width, std::string_view gate, std::string_view up,
               std::string_view down) {
    MlpDesc& mlp = layer_.mlp;
    mlp.width = width;
    mlp.gate = matrix(gate, traits_.mlp_bias, width, input, Basis::own);
    mlp.up = matrix(up, traits_.mlp_bias, width, input, Basis::own);
    const int gated =
        activation("down", width, {}, Basis::own, feeder(layer_.matrix(mlp.up), width, 1));
    mlp.down = matrix(down, traits_.mlp_bias, config_.hidden, gated, Basis::residual);
  }

  void add_experts(int input) {
    const ExpertTraits& traits = traits_.experts;
    ExpertsDesc& e = layer_.experts;
    e.count = traits.count;
    e.chosen = traits.chosen;
    e.width = traits.width;
    e.routing = traits.routing;
    if (!traits.choice_bias.empty())
      e.routing.bias = std::string(names_.layers) + index_ + "." + std::string(traits.choice_bias);
    e.router = matrix(names_.router, traits.router_bias, e.count, input, Basis::own);
    layer_.matrices.back().plain = true;
    if (traits.gated_shared) {
      e.shared_gate = matrix(names_.shared_gate, false, 1, input, Basis::own);
      layer_.matrices.back().plain = true;
    }
    const int gated = activation("experts.down", e.width, {}, Basis::own);
    e.first = static_cast<int>(layer_.matrices.size());
    for (int64_t i = 0; i < e.count; ++i) {
      const auto add = [&](std::string_view name, int64_t rows, int from, Basis outputs) {
        const std::string full =
            std::string(names_.experts) + std::to_string(i) + "." + std::string(name);
        matrix(full, traits.bias, rows, from, outputs);
        layer_.matrices.back().expert = static_cast<int>(i);
      };
      add(names_.expert_gate, e.width, input, Basis::own);
      add(names_.expert_up, e.width, input, Basis::own);
      add(names_.expert_down, config_.hidden, gated, Basis::residual);
      describe_parts(i);
    }
  }

  // Where expert i lies in tensors of all experts.
  void describe_parts(int64_t i) {
    const ExpertTraits& traits = traits_.experts;
    const ExpertsDesc& e = layer_.experts;
    const int64_t n = e.count, width = e.width, hidden = config_.hidden, both = 2 * width;
    const std::string prefix = std::string(names_.layers) + index_ + ".";
    const std::string gate_up = prefix + std::string(names_.all_gate_up);
    const std::string down = prefix + std::string(names_.all_down);
    const MatrixDesc *g = &layer_.matrix(e.gate(i)), *u = g + 1, *d = g + 2;
    const auto part = [&](const std::string& name, const std::string& source,
                          std::vector<int64_t> shape, int64_t rows, int64_t cols, int64_t first,
                          int64_t row_step, int64_t col_step) {
      config_.parts.push_back(
          {name, source, 0, rows, 0, 0, std::move(shape), cols, first, row_step, col_step});
    };
    const int64_t begin = i * both * hidden, down_begin = i * hidden * width;
    if (traits.order == ExpertOrder::rows) {
      const std::vector<int64_t> shape = {n, both, hidden};
      part(g->weight, gate_up, shape, width, hidden, begin, hidden, 1);
      part(u->weight, gate_up, shape, width, hidden, begin + width * hidden, hidden, 1);
      part(d->weight, down, {n, hidden, width}, hidden, width, down_begin, width, 1);
      return;
    }
    const std::vector<int64_t> shape = {n, hidden, both};
    part(g->weight, gate_up, shape, width, hidden, begin, 2, both);
    part(u->weight, gate_up, shape, width, hidden, begin + 1, 2, both);
    part(d->weight, down, {n, width, hidden}, hidden, width, down_begin, 1, hidden);
    if (!traits.bias) return;
    part(g->bias, gate_up + "_bias", {n, both}, 1, width, i * both, 0, 2);
    part(u->bias, gate_up + "_bias", {n, both}, 1, width, i * both + 1, 0, 2);
    part(d->bias, down + "_bias", {n, hidden}, 1, hidden, i * hidden, 0, 1);
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
