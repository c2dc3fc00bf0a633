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

  // Describes a layer that predicts ahead, which joins a token and the model's output.
  LayerDesc build(const AheadTraits& ahead) {
    const int64_t hidden = config_.hidden;
    activations_ = "ahead.";
    const int joined = activation("join", 2 * hidden, {}, Basis::own);
    layer_.join.project = matrix("", false, hidden, joined, Basis::own);
    layer_.matrices.back().weight = ahead.project + ".weight";
    layer_.join.token = {ahead.token_norm + ".weight", hidden, traits_.norm_eps,
                         traits_.gain_offset};
    layer_.join.stream = {ahead.stream_norm + ".weight", hidden, traits_.norm_eps,
                          traits_.gain_offset};
    return build();
  }

  LayerDesc build() {
    if (own_.mixer) add_mixer();
    if (own_.feed_forward) add_feed_forward();
    if (traits_.norms_after) {
      layer_.after_attention = norm(names_.after_attention_norm, config_.hidden);
      layer_.after_mlp = norm(names_.after_mlp_norm, config_.hidden);
    }
    if (traits_.layer_embedding > 0) add_layer_embedding();
    for (const auto& [vector, name] : names_.vectors)
      layer_.vectors[vector] = of_layer(name);
    layer_.branch_scale = traits_.branch_scale;
    layer_.parallel = traits_.parallel;
    return std::move(layer_);
  }

 private:
  void add_mixer() {
    if (!own_.recurrent) return add_attention();
    if (traits_.short_convolution.taps > 0) return add_short_convolution();
    add_delta_net();
  }

  std::string of_layer(std::string_view name) const {
    return std::string(names_.layers) + index_ + "." + std::string(name);
  }
  std::string weight(std::string_view name) const { return of_layer(name) + ".weight"; }

  NormDesc norm(std::string_view name, int64_t width) const {
    if (name.empty()) return {};
    NormDesc desc = {weight(name), width, traits_.norm_eps, traits_.gain_offset};
    desc.centered = traits_.layer_norms;
    return desc;
  }
  NormDesc latent_norm(std::string_view name, int64_t width) const {
    return {weight(name), width, traits_.latent.norm_eps, traits_.gain_offset};
  }

  int activation(const char* name, int64_t width, NormDesc norm, Basis basis, Feeder feeder = {}) {
    layer_.activations.push_back(
        {activations_ + index_ + "." + name, width, std::move(norm), basis, std::move(feeder)});
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

  // Describes matrices whose rows the checkpoint stores below each other in one tensor.
  void stack(std::string_view name, std::initializer_list<int> matrices) {
    if (name.empty()) return;
    int64_t first = 0;
    for (const int index : matrices) {
      const MatrixDesc& m = layer_.matrix(index);
      config_.parts.push_back({m.weight, weight(name), first, m.rows, 0, 0});
      if (!m.bias.empty())
        config_.parts.push_back({m.bias, of_layer(name) + ".bias", first, m.rows, 0, 0});
      first += m.rows;
    }
  }

  // Says that the checkpoint stores the two values of a turned pair as neighbours.
  void pair_rows(const MatrixDesc& m) {
    const int64_t turned =
        rotated_values(config_.ropes[static_cast<size_t>(own_.rope)], own_.head_dim);
    config_.parts.push_back({m.weight, m.weight, 0, m.rows, turned, own_.head_dim});
    if (!m.bias.empty())
      config_.parts.push_back({m.bias, m.bias, 0, m.rows, turned, own_.head_dim});
  }

  // Returns the feeder for an activation that is computed from the rows of a matrix.
  static Feeder feeder(const MatrixDesc& m, int64_t dim, int64_t repeat) {
    return {m.weight, m.bias, dim, repeat};
  }

  void describe_heads(AttentionDesc& a) const {
    a.heads = own_.heads;
    a.kv_heads = own_.kv_heads;
    a.head_dim = own_.head_dim;
    a.rope = own_.rope;
    static_cast<AttentionOptions&>(a) = own_;
    static_cast<HeadOptions&>(a) = own_;
    if (a.scale == 0) a.scale = 1.0f / std::sqrt(static_cast<float>(own_.head_dim));
    a.gated = traits_.attention_gate;
    a.cache_of = own_.cache_of;
  }

  void add_attention() {
    AttentionDesc& a = layer_.attention;
    describe_heads(a);
    if (traits_.qk_norm) {
      a.q_norm = norm(names_.q_norm, traits_.qk_norm_of_all ? a.query_width() : a.head_dim);
      if (a.has_cache())
        a.k_norm = norm(names_.k_norm, traits_.qk_norm_of_all ? a.kv_width() : a.head_dim);
    }
    const int input = activation("attention", config_.hidden,
                                 norm(names_.attention_norm, config_.hidden), Basis::residual);
    if (traits_.latent.rank > 0) {
      add_latent(input);
      return;
    }
    a.q = matrix(names_.q, traits_.qkv_bias, a.query_rows(), input, Basis::own);
    if (own_.cache_of >= 0 || own_.values_are_keys || own_.value_eps != 0) {
      add_other_values(a, input);
      return;
    }
    // Gates multiply the values of a head one by one, so a rotation of these values cannot be moved
    // past them.
    const Basis values = a.gated ? Basis::own : Basis::heads;
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

  // Adds attention with another layer's values, or values that are keys or have a norm. What o
  // reads is then no multiple of rows of v that could be scaled.
  void add_other_values(AttentionDesc& a, int input) {
    if (a.has_cache()) {
      a.k = matrix(names_.k, traits_.qkv_bias, a.kv_width(), input, Basis::own);
      if (!own_.values_are_keys)
        a.v = matrix(names_.v, traits_.qkv_bias, a.kv_width(), input, Basis::own);
    } else {
      // Checkpoints may still have these tensors, which such a layer does not use.
      for (const std::string& unused : {names_.k, names_.v, names_.k_norm})
        config_.ignored.push_back(weight(unused));
    }
    const int attended = activation("o", a.query_width(), {}, Basis::own);
    a.o = matrix(names_.o, traits_.o_bias, config_.hidden, attended, Basis::residual);
  }

  // Adds latent attention; all between its input and the input of o keeps the checkpoint's basis.
  void add_latent(int input) {
    const LatentTraits& t = traits_.latent;
    AttentionDesc& a = layer_.attention;
    a.latent = {t.rank, t.query_rank, t.rope_dim, t.value_dim};
    LatentDesc& l = a.latent;
    const bool bias = traits_.qkv_bias;
    if (t.query_rank == 0) {
      a.q = matrix(names_.q, false, a.query_width(), input, Basis::own);
    } else {
      l.query_down = matrix(names_.query_down, bias, t.query_rank, input, Basis::own);
    }
    l.down = matrix(names_.latent, bias, t.rank, input, Basis::own);
    l.shared_key = matrix(names_.shared_key, bias, t.rope_dim, input, Basis::own);
    if (t.query_rank > 0) {
      const int query_latent =
          activation("query_latent", t.query_rank,
                     latent_norm(names_.query_down_norm, t.query_rank), Basis::own);
      a.q = matrix(names_.query_up, false, a.query_width(), query_latent, Basis::own);
    }
    const int latent =
        activation("latent", t.rank, latent_norm(names_.kv_down_norm, t.rank), Basis::own);
    a.k = matrix(names_.key_up, false, a.heads * (a.head_dim - t.rope_dim), latent, Basis::own);
    a.v = matrix(names_.value_up, false, a.value_width(), latent, Basis::own);
    describe_latent_parts(a);
    const int attended = activation("o", a.value_width(), {}, Basis::own,
                                    feeder(layer_.matrix(a.v), t.value_dim, 1));
    a.o = matrix(names_.o, traits_.o_bias, config_.hidden, attended, Basis::residual);
  }

  // Says where the parts are in a checkpoint. In a query the turned values come after the others.
  // One tensor has the rows of the latent above those of the shared key; in another each head's
  // rows of keys are above its rows of values.
  void describe_latent_parts(const AttentionDesc& a) {
    const LatentDesc& l = a.latent;
    const int64_t plain = a.head_dim - l.rope_dim, head = plain + l.value_dim;
    const int64_t turned = traits_.paired_rope ? l.rope_dim : 0;
    const MatrixDesc &down = layer_.matrix(l.down), &key = layer_.matrix(l.shared_key);
    const auto below = [&](const std::string& latent, const std::string& shared,
                           const std::string& source) {
      config_.parts.push_back({latent, source, 0, l.rank, 0, 0});
      config_.parts.push_back({shared, source, l.rank, l.rope_dim, turned, l.rope_dim});
    };
    below(down.weight, key.weight, weight(names_.kv_down));
    if (!down.bias.empty()) below(down.bias, key.bias, of_layer(names_.kv_down) + ".bias");
    std::vector<TensorPart::RowGroups> rows;
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t first = h * a.head_dim, rotated = first + plain;
      if (turned == 0) {
        rows.push_back({rotated, l.rope_dim, 0, 1});
      } else {
        rows.push_back({rotated, 1, 2, turned / 2});
        rows.push_back({rotated + 1, 1, 2, turned / 2});
      }
      if (plain > 0) rows.push_back({first, plain, 0, 1});
    }
    const MatrixDesc& q = layer_.matrix(a.q);
    add_rows(q, q.weight, q.rows, std::move(rows));
    add_rows(layer_.matrix(a.k), weight(names_.kv_up), a.heads * head, {{0, plain, head, a.heads}});
    add_rows(layer_.matrix(a.v), weight(names_.kv_up), a.heads * head,
             {{plain, l.value_dim, head, a.heads}});
  }

  // Describes a matrix that consists of these row groups of a tensor with `rows` rows.
  void add_rows(const MatrixDesc& m, const std::string& source, int64_t rows,
                std::vector<TensorPart::RowGroups> groups) {
    TensorPart part;
    part.name = m.weight;
    part.source = source;
    part.shape = {rows, m.cols};
    part.rows = m.rows;
    part.cols = m.cols;
    part.groups = std::move(groups);
    config_.parts.push_back(std::move(part));
  }

  void add_delta_net() {
    const DeltaNetTraits& t = traits_.delta_net;
    DeltaNetDesc& d = layer_.delta_net;
    static_cast<DeltaNetShape<int64_t>&>(d) = t;
    d.norm = {weight(names_.delta_norm), d.value_dim, traits_.norm_eps, 0};
    if (t.additive) describe_additive(d);
    const int input = activation("attention", config_.hidden,
                                 norm(names_.attention_norm, config_.hidden), Basis::residual);
    d.qkv = matrix(names_.delta_qkv, t.bias, d.channels(), input, Basis::own);
    d.z = matrix(names_.delta_z, t.bias, d.value_width(), input, Basis::own);
    d.b = matrix(names_.delta_b, t.bias, d.value_heads, input, Basis::own);
    layer_.matrices.back().plain = !t.additive;  // Else it is rows of a coded matrix.
    if (!t.additive) {
      d.a = matrix(names_.delta_a, false, d.value_heads, input, Basis::own);
      layer_.matrices.back().plain = true;
    }
    stack(names_.delta_in, {d.z, d.qkv, d.b});
    // The norm in front is no part of the activation, so no matrix in front can be scaled.
    const int gated = activation("o", d.value_width(), {}, Basis::own);
    d.o = matrix(names_.delta_o, t.bias, config_.hidden, gated, Basis::residual);
    if (!names_.delta_qkvz.empty()) describe_delta_parts(d);
  }

  void describe_additive(DeltaNetDesc& d) const {
    const DeltaNetTraits& t = traits_.delta_net;
    d.norm.width = d.value_width() / d.key_heads;
    d.norm.eps = t.norm_eps;
    d.least_strength = t.least_strength;
    d.most_strength = t.most_strength;
  }

  // Says where the parts are in a checkpoint. It stores, for each key head, the rows of its query,
  // key, values and gates; b and a are stored in the same way.
  void describe_delta_parts(const DeltaNetDesc& d) {
    const int64_t heads = d.key_heads, group = d.group();
    const int64_t key = d.key_dim, value = group * d.value_dim, step = 2 * (key + value);
    const auto add = [&](int matrix, std::string_view source, int64_t rows,
                         std::vector<TensorPart::RowGroups> groups) {
      add_rows(layer_.matrix(matrix), weight(source), rows, std::move(groups));
    };
    add(d.qkv, names_.delta_qkvz, heads * step,
        {{0, key, step, heads}, {key, key, step, heads}, {2 * key, value, step, heads}});
    add(d.z, names_.delta_qkvz, heads * step, {{2 * key + value, value, step, heads}});
    add(d.b, names_.delta_ba, 2 * d.value_heads, {{0, group, 2 * group, heads}});
    add(d.a, names_.delta_ba, 2 * d.value_heads, {{group, group, 2 * group, heads}});
  }

  // The rows of `after` multiply what o reads, so they are its feeder.
  void add_short_convolution() {
    const ShortConvolutionTraits& t = traits_.short_convolution;
    ShortConvolutionDesc& c = layer_.short_convolution;
    c.channels = config_.hidden;
    c.taps = t.taps;
    const int input = activation("attention", config_.hidden,
                                 norm(names_.attention_norm, config_.hidden), Basis::residual);
    const auto part = [&](const char* name) {
      return matrix(std::string(names_.short_in) + name, t.bias, c.channels, input, Basis::own);
    };
    c.before = part("_before");
    c.after = part("_after");
    c.inner = part("_inner");
    stack(names_.short_in, {c.before, c.after, c.inner});
    const int gated =
        activation("o", c.channels, {}, Basis::own, feeder(layer_.matrix(c.after), c.channels, 1));
    c.o = matrix(names_.short_o, t.bias, config_.hidden, gated, Basis::residual);
  }

  void add_feed_forward() {
    layer_.mlp.function = traits_.gate_function;
    layer_.mlp.slope = traits_.gate_slope;
    layer_.mlp.limit = traits_.gate_limit;
    // A parallel MLP reads the activation of attention, which is the layer's first.
    const int input = traits_.parallel
                          ? 0
                          : activation("mlp", config_.hidden, norm(names_.mlp_norm, config_.hidden),
                                       Basis::residual);
    if (!own_.experts) {
      add_mlp(input, own_.intermediate, names_.gate, names_.up, names_.down);
      stack(names_.gate_up, {layer_.mlp.gate, layer_.mlp.up});
      return;
    }
    if (!names_.experts_norm.empty()) {
      add_mlp(input, own_.intermediate, names_.gate, names_.up, names_.down);
      add_experts_apart();
      return;
    }
    add_experts(input, input);
    if (own_.shared == 0) return;
    if (names_.shared.empty()) {
      add_mlp(input, own_.shared, names_.gate, names_.up, names_.down);
      return stack(names_.gate_up, {layer_.mlp.gate, layer_.mlp.up});
    }
    const auto name = [&](const char* part) { return std::string(names_.shared) + part; };
    add_mlp(input, own_.shared, name("gate_proj"), name("up_proj"), name("down_proj"));
  }

  void add_mlp(int input, int64_t width, std::string_view gate, std::string_view up,
               std::string_view down) {
    MlpDesc& mlp = layer_.mlp;
    mlp.width = width;
    if (!traits_.ungated) mlp.gate = matrix(gate, traits_.mlp_bias, width, input, Basis::own);
    mlp.up = matrix(up, traits_.mlp_bias, width, input, Basis::own);
    // Without a gate, scaling rows of up would not scale what their function gives alike.
    const Feeder up_rows = traits_.ungated ? Feeder() : feeder(layer_.matrix(mlp.up), width, 1);
    const int gated = activation("down", width, {}, Basis::own, up_rows);
    mlp.down = matrix(down, traits_.mlp_bias, config_.hidden, gated, Basis::residual);
  }

  // Adds experts beside the MLP, with norms before router and experts, and after experts and
  // MLP. The router's norm has no gain: a product with a vector, divided by the root of its length,
  // follows.
  void add_experts_apart() {
    const int64_t hidden = config_.hidden;
    NormDesc in_front = {of_layer(names_.router_norm), hidden, traits_.norm_eps, 0};
    in_front.factor = 1 / std::sqrt(static_cast<float>(hidden));
    const int router = activation("router", hidden, in_front, Basis::residual);
    const int input =
        activation("experts", hidden, norm(names_.experts_norm, hidden), Basis::residual);
    add_experts(router, input);
    ExpertsDesc& e = layer_.experts;
    e.after = norm(names_.after_experts_norm, hidden);
    e.after_shared = norm(names_.after_shared_norm, hidden);
  }

  // Layer 0 has what all layers have in common.
  void add_layer_embedding() {
    LayerEmbeddingDesc& e = layer_.embedding;
    e.width = traits_.layer_embedding;
    const auto layers = static_cast<int64_t>(traits_.layers.size());
    if (index_ == "0") {
      const int token = activation("token", config_.hidden, {}, Basis::own);
      e.project = matrix("", false, layers * e.width, token, Basis::own);
      layer_.matrices.back().weight = std::string(names_.layer_projection) + ".weight";
      // The factor divides the sum of two rows by the root of 2. The product is divided by the root
      // of the width, which a norm undoes, except that its eps changes.
      e.norm = {std::string(names_.layer_projection_norm), e.width,
                traits_.norm_eps * static_cast<float>(config_.hidden), traits_.gain_offset};
      e.norm.factor = std::sqrt(0.5f);
    }
    const int input = activation("embedding.gate", config_.hidden, {}, Basis::own);
    e.gate = matrix(names_.layer_gate, false, e.width, input, Basis::own);
    const int gated = activation("embedding.out", e.width, {}, Basis::own);
    e.out = matrix(names_.layer_out, false, config_.hidden, gated, Basis::residual);
    e.after = norm(names_.after_layer_norm, config_.hidden);
  }

  void add_experts(int router, int input) {
    const ExpertTraits& traits = traits_.experts;
    ExpertsDesc& e = layer_.experts;
    e.count = traits.count;
    e.chosen = traits.chosen;
    e.width = traits.width;
    e.routing = traits.routing;
    e.router = matrix(names_.router, traits.router_bias, e.count, router, Basis::own);
    layer_.matrices.back().plain = true;
    if (traits.gated_shared) {
      e.shared_gate = matrix(names_.shared_gate, false, 1, input, Basis::own);
      layer_.matrices.back().plain = true;
    }
    const int gated = activation("experts.down", e.width, {}, Basis::own);
    e.gated = !traits_.ungated;
    e.first = static_cast<int>(layer_.matrices.size());
    for (int64_t i = 0; i < e.count; ++i) {
      const auto add = [&](std::string_view name, int64_t rows, int from, Basis outputs) {
        const std::string full =
            std::string(names_.experts) + std::to_string(i) + "." + std::string(name);
        matrix(full, traits.bias, rows, from, outputs);
        layer_.matrices.back().expert = static_cast<int>(i);
      };
      if (e.gated) add(names_.expert_gate, e.width, input, Basis::own);
      add(names_.expert_up, e.width, input, Basis::own);
      add(names_.expert_down, config_.hidden, gated, Basis::residual);
      describe_parts(i);
    }
  }

  // Says where expert i is in the tensors that contain all experts.
  void describe_parts(int64_t i) {
    if (!layer_.experts.gated) return describe_ungated_parts(i);
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
    const auto describe_rows = [&] {
      const std::vector<int64_t> shape = {n, both, hidden};
      part(g->weight, gate_up, shape, width, hidden, begin, hidden, 1);
      part(u->weight, gate_up, shape, width, hidden, begin + width * hidden, hidden, 1);
      part(d->weight, down, {n, hidden, width}, hidden, width, down_begin, width, 1);
    };
    if (traits.order == ExpertOrder::rows) return describe_rows();
    const std::vector<int64_t> shape = {n, hidden, both};
    const bool alternate = traits.order == ExpertOrder::interleaved;
    const int64_t step = alternate ? 2 : 1, ups = alternate ? 1 : width;
    part(g->weight, gate_up, shape, width, hidden, begin, step, both);
    part(u->weight, gate_up, shape, width, hidden, begin + ups, step, both);
    part(d->weight, down, {n, width, hidden}, hidden, width, down_begin, 1, hidden);
    if (traits.order == ExpertOrder::any) describe_rows();
    if (!traits.bias) return;
    part(g->bias, gate_up + "_bias", {n, both}, 1, width, i * both, 0, step);
    part(u->bias, gate_up + "_bias", {n, both}, 1, width, i * both + ups, 0, step);
    part(d->bias, down + "_bias", {n, hidden}, 1, hidden, i * hidden, 0, 1);
  }

  // Up and down have a tensor each, as in ExpertOrder::rows.
  void describe_ungated_parts(int64_t i) {
    const ExpertsDesc& e = layer_.experts;
    const auto part = [&](int matrix, std::string_view name) {
      const MatrixDesc& m = layer_.matrix(matrix);
      config_.parts.push_back({m.weight,
                               of_layer(name),
                               0,
                               m.rows,
                               0,
                               0,
                               {e.count, m.rows, m.cols},
                               m.cols,
                               i * m.rows * m.cols,
                               m.cols,
                               1});
    };
    part(e.up(i), names_.all_up);
    part(e.down(i), names_.all_down);
  }

  const DecoderTraits& traits_;
  const TensorNames& names_;
  const LayerTraits& own_;
  std::string index_;
  std::string activations_ = "layers.";
  ModelConfig& config_;
  LayerDesc layer_;
};

AheadDesc build_ahead(const DecoderTraits& traits, ModelConfig& config) {
  const AheadTraits& ahead = traits.ahead;
  DecoderTraits own = traits;
  own.names.layers = ahead.layers;
  AheadDesc desc;
  desc.layer.push_back(LayerBuilder(own, ahead.layer, ahead.index, config).build(ahead));
  desc.norm = {ahead.norm + ".weight", config.hidden, traits.norm_eps, traits.gain_offset};
  desc.joins_normed = ahead.joins_normed;
  desc.goes_on_normed = ahead.goes_on_normed;
  return desc;
}

}  // namespace

void build_layers(const DecoderTraits& traits, ModelConfig& config) {
  const TensorNames& names = traits.names;
  for (size_t i = 0; i < traits.layers.size(); ++i)
    config.layers.push_back(LayerBuilder(traits, traits.layers[i], i, config).build());
  if (traits.ahead.present()) config.ahead = build_ahead(traits, config);
  config.embedding = names.embedding;
  if (traits.layer_embedding > 0) {
    const auto values = static_cast<int64_t>(traits.layers.size()) * traits.layer_embedding;
    config.layer_embedding = {std::string(names.layer_embedding), values,
                              std::sqrt(0.5f * static_cast<float>(traits.layer_embedding))};
  }
  config.head_name = names.head;
  config.head_input = {
      "head",
      config.hidden,
      {std::string(names.final_norm), config.hidden, traits.norm_eps, traits.gain_offset},
      Basis::residual};
  config.head_input.norm.centered = traits.layer_norms;
  config.head.weight = config.tied_head ? config.embedding : config.head_name;
  config.head.rows = config.vocab;
  config.head.cols = config.hidden;
  // Old checkpoints store the frequencies of rope, which the config determines.
  config.ignored.push_back("model.rotary_emb.inv_freq");
  for (size_t i = 0; i < traits.layers.size(); ++i) {
    config.ignored.push_back(std::string(names.layers) + std::to_string(i) +
                             ".self_attn.rotary_emb.inv_freq");
  }
}

}  // namespace walsh
