#include "model/steps.h"

#include <algorithm>

namespace walsh {
namespace {

// Returns whether no layer after this one writes to a cache or to a state. If so, its output
// matters only for rows whose logits are wanted.
bool is_tail(const ModelConfig& config, size_t layer) {
  for (size_t i = layer + 1; i < config.layers.size(); ++i)
    if (config.layers[i].has_state() || config.layers[i].attention.cache_of < 0) return false;
  return true;
}

// Makes the steps of one layer from its description.
class LayerBuilder {
 public:
  LayerBuilder(const ModelConfig& config, int index, ModelSteps& all)
      : config_(config),
        desc_(config.layers[static_cast<size_t>(index)]),
        index_(index),
        is_tail_(is_tail(config, static_cast<size_t>(index))),
        all_(all),
        layer_(all.layers[static_cast<size_t>(index)]) {}

  void build() {
    layer_.vectors = layer_vectors(desc_);
    for (const ActivationDesc& activation : desc_.activations)
      layer_.inputs.push_back({norm(activation.norm), {}});
    layer_.matrices.resize(desc_.matrices.size());
    if (desc_.join.present()) add_join();
    if (desc_.delta_net.present()) {
      add_delta_net();
    } else if (desc_.short_convolution.present()) {
      add_short_convolution();
    } else if (desc_.attention.present()) {
      add_attention();
    }
    if (desc_.experts.present()) {
      add_experts();
    } else if (desc_.mlp.width > 0) {
      add_mlp();
    }
    if (desc_.embedding.present()) add_embedding();
    const bool is_last = index_ + 1 == static_cast<int>(config_.layers.size());
    if (is_last && !desc_.matrices.empty()) center(config_.head_input.norm, false);
  }

 private:
  int vector(const std::string& name) const { return find_vector(layer_.vectors, name); }
  int vector(LayerVector kind) const {
    const auto named = desc_.vectors.find(kind);
    return named == desc_.vectors.end() ? -1 : vector(named->second);
  }

  Norm norm(const NormDesc& desc) const {
    if (!desc.present()) return {};
    return {vector(desc.weight), desc.width, desc.eps};
  }

  GateRule gate_rule() const { return {desc_.mlp.function, desc_.mlp.slope, desc_.mlp.limit}; }

  Operand stream() const { return {Rows::stream, config_.hidden}; }
  Operand branch() const { return {Rows::branch, config_.hidden}; }

  int64_t rows_of(int matrix) const { return desc_.matrix(matrix).rows; }

  // Adds a step. With `before_state` it leads to what goes to the cache or to a state, for which
  // every row is needed.
  template <typename Kind>
  void add(Kind kind, bool before_state = false) {
    Step& step = layer_.steps.emplace_back();
    step.op = std::move(kind);
    step.layer = index_;
    step.only_wanted = is_tail_ && !before_state;
    const auto* convolve = std::get_if<step::Convolve>(&step.op);
    step.changes_state = std::holds_alternative<step::DeltaRule>(step.op) ||
                         (convolve != nullptr && convolve->gated());
  }

  // Subtracts the mean from the stream if the next norm wants that (LayerNorm).
  void center(const NormDesc& norm, bool before_state) {
    if (norm.centered) add(step::CenterRows{stream()}, before_state);
  }

  // Returns a product with the matrix's input, still without outputs.
  step::Product product(int matrix, Rows from, int64_t stride = 0) const {
    step::Product product;
    product.input = desc_.matrix(matrix).input;
    const Input& input = layer_.inputs[static_cast<size_t>(product.input)];
    const int64_t width = desc_.input_of(desc_.matrix(matrix)).width;
    product.from = {from, width, std::max(width, stride)};
    product.norm = input.norm;
    return product;
  }

  void multiply(step::Product& product, int matrix, Rows to, int64_t stride = 0) const {
    const int64_t width = rows_of(matrix);
    product.outputs.push_back({matrix, {to, width, std::max(width, stride)}});
  }

  // Returns a product with the gated input of `down`, still without outputs.
  step::Product gated_product(int matrix) const {
    step::Product result = product(matrix, desc_.mlp.gate >= 0 ? Rows::gate : Rows::up);
    result.up = {Rows::up, result.from.width};
    result.gate = gate_rule();
    return result;
  }

  // Adds the steps for stream += scale * norm(product with the matrix).
  void add_exit(step::Product product, int matrix, const NormDesc& after) {
    const bool plain =
        !after.present() && desc_.branch_scale == 1 && vector(LayerVector::stream_factor) < 0;
    product.add = plain;
    multiply(product, matrix, plain ? Rows::stream : Rows::branch);
    add(std::move(product));
    if (!plain) add_branch(after, !desc_.embedding.present() && &after == &desc_.after_mlp);
  }

  // Adds the step stream = factor * (stream + scale * norm(branch)). Only the last such step of a
  // layer has the factor.
  void add_branch(const NormDesc& after, bool is_last) {
    const int factor = is_last ? vector(LayerVector::stream_factor) : -1;
    add(step::AddBranch{branch(), stream(), norm(after), desc_.branch_scale, factor});
  }

  // Adds the join of a layer that predicts ahead: norms both parts of the pair and writes their
  // product to the stream. Every row takes part.
  void add_join() {
    const JoinDesc& j = desc_.join;
    add(step::NormRows{joined_token(config_), norm(j.token)}, true);
    add(step::NormRows{joined_stream(config_), norm(j.stream)}, true);
    step::Product joined = product(j.project, Rows::pair);
    multiply(joined, j.project, Rows::stream);
    add(std::move(joined), true);
  }

  HeadShape head_shape() const {
    const AttentionDesc& a = desc_.attention;
    return {a.heads, a.kv_heads, a.head_dim};
  }

  // Adds the products of latent attention: the latent of queries, if they have one, the latent of
  // keys and values, and the queries.
  void add_latent_products() {
    const AttentionDesc& a = desc_.attention;
    const LatentDesc& l = a.latent;
    const bool of_latent = l.query_rank > 0;
    step::Product first = product(l.down, Rows::stream);
    if (of_latent) {
      multiply(first, l.query_down, Rows::query_latent);
    } else {
      multiply(first, a.q, Rows::query);
    }
    multiply(first, l.down, Rows::latent);
    multiply(first, l.shared_key, Rows::shared_key);
    add(std::move(first), true);
    if (of_latent) {
      step::Product query = product(a.q, Rows::query_latent);
      multiply(query, a.q, Rows::query);
      add(std::move(query), true);
    }
  }

  // Returns the index of the layer's query factors in ModelSteps::query_factors, which it adds if
  // they are new.
  int query_factors() {
    const AttentionDesc& a = desc_.attention;
    QueryFactors own;
    if (a.rope >= 0 && config_.ropes[static_cast<size_t>(a.rope)].query_beta != 0)
      own.rope = a.rope;
    if (a.growth != 0) {
      own.growth = a.growth;
      own.growth_step = a.growth_step;
    }
    if (own == QueryFactors()) return -1;
    auto& known = all_.query_factors;
    const auto found = std::find(known.begin(), known.end(), own);
    const auto place = static_cast<int>(found - known.begin());
    if (found == known.end()) known.push_back(own);
    return place;
  }

  // Adds the steps of attention to latents: latents and shared keys go to the cache, and queries
  // are multiplied so that they meet latents instead of keys.
  void add_latent_attention() {
    const AttentionDesc& a = desc_.attention;
    const LatentDesc& l = a.latent;
    add_latent_products();
    const Operand query{Rows::query, a.query_width()};
    step::PrepareHeads prepare;
    prepare.shape = {a.heads, 1, a.head_dim};
    prepare.cache = index_;
    prepare.query = prepare.to = query;
    prepare.latent = {Rows::latent, l.rank};
    prepare.shared_key = {Rows::shared_key, l.rope_dim};
    prepare.key = {Rows::key, a.cache_dim()};
    prepare.latent_input = desc_.matrix(a.k).input;
    prepare.rope = a.rope;
    prepare.factors = query_factors();
    add(std::move(prepare), true);
    const int64_t own = a.head_dim - l.rope_dim;
    const Operand wide{Rows::head_query, a.heads * a.cache_dim()};
    multiply_heads({a.k, true, a.heads, l.rank, own, l.rope_dim, query, wide}, true);
    const Operand latents{Rows::latent_mixed, a.heads * l.rank};
    step::Attend attend;
    attend.cache = index_;
    attend.shape = {a.heads, 1, a.cache_dim()};
    attend.query = wide;
    attend.to = latents;
    attend.options = a;
    attend.value_dim = l.rank;
    add(std::move(attend));
    const Operand mixed{Rows::mixed, a.value_width()};
    multiply_heads({a.v, false, a.heads, l.value_dim, l.rank, 0, latents, mixed}, false);
    add_exit(product(a.o, Rows::mixed), a.o, desc_.after_attention);
  }

  void multiply_heads(const step::MultiplyHeads& step, bool before_attention) {
    MatrixForm& form = layer_.matrices[static_cast<size_t>(step.matrix)];
    form.by_head = true;
    form.transposed = step.transposed;
    form.heads = step.heads;
    add(step, before_attention);
  }

  void add_attention() {
    const AttentionDesc& a = desc_.attention;
    if (a.latent.present()) return add_latent_attention();
    center(desc_.input_of(desc_.matrix(a.q)).norm, true);
    step::Product heads = product(a.q, Rows::stream);
    multiply(heads, a.q, Rows::query);
    if (a.k >= 0) multiply(heads, a.k, Rows::key);
    if (a.v >= 0) multiply(heads, a.v, Rows::value);
    add(std::move(heads), true);
    step::PrepareHeads prepare;
    prepare.shape = head_shape();
    prepare.cache = a.has_cache() ? index_ : a.cache_of;
    prepare.query = {Rows::query, a.query_rows()};
    if (a.has_cache()) {
      prepare.key = {Rows::key, a.kv_width()};
      prepare.value = {Rows::value, a.kv_width()};
      prepare.values_are_keys = a.v < 0;
    }
    prepare.to = {a.gated ? Rows::head_query : Rows::query, a.query_width()};
    if (a.gated) prepare.gates = {Rows::mixer_gate, a.query_width()};
    prepare.query_norm = norm(a.q_norm);
    prepare.key_norm = norm(a.k_norm);
    prepare.options = a;
    prepare.unit_gain = vector(kUnitGain);
    prepare.rope = a.rope;
    prepare.factors = query_factors();
    const Operand queries = prepare.to;
    const int cache = prepare.cache;
    add(std::move(prepare), true);
    const Operand mixed{Rows::mixed, a.query_width()};
    step::Attend attend;
    attend.cache = cache;
    attend.shape = head_shape();
    attend.query = queries;
    attend.to = mixed;
    attend.options = a;
    attend.sinks = vector(LayerVector::sinks);
    attend.value_dim = a.head_dim;
    add(std::move(attend));
    if (a.gated)
      add(step::GateHeads{mixed, {Rows::mixer_gate, a.query_width()}, a.heads, a.head_dim, {}});
    // A parallel MLP reads the stream before attention has changed it.
    if (desc_.parallel) add_gate_and_up();
    add_exit(product(a.o, Rows::mixed, a.query_width()), a.o, desc_.after_attention);
  }

  void add_delta_net() {
    const DeltaNetDesc& d = desc_.delta_net;
    step::Product first = product(d.qkv, Rows::stream);
    multiply(first, d.qkv, Rows::channels);
    multiply(first, d.z, Rows::mixer_gate);
    multiply(first, d.b, Rows::strength);
    if (d.a >= 0) multiply(first, d.a, Rows::decay);
    add(std::move(first), true);
    const Operand channels{Rows::channels, d.channels()}, decay{Rows::decay, d.value_heads},
        strength{Rows::strength, d.value_heads}, mixed{Rows::mixed, d.value_width()};
    step::Convolve convolve;
    convolve.net = d;
    convolve.channels = channels;
    convolve.decay = decay;
    convolve.strength = strength;
    convolve.taps = vector(LayerVector::taps);
    convolve.channel_bias = vector(LayerVector::taps_bias);
    convolve.rate = vector(LayerVector::decay_rate);
    convolve.bias = vector(LayerVector::decay_bias);
    convolve.query_scale = vector(kQueryLengthGain);
    convolve.key_scale = vector(kKeyLengthGain);
    add(std::move(convolve), true);
    add(step::DeltaRule{d, channels, decay, strength, mixed, vector(LayerVector::skip)});
    add(step::GateHeads{mixed,
                        {Rows::mixer_gate, d.value_width()},
                        d.value_width() / d.norm.width,
                        d.norm.width,
                        norm(d.norm),
                        d.additive});
    add_exit(product(d.o, Rows::mixed), d.o, desc_.after_attention);
  }

  void add_short_convolution() {
    const ShortConvolutionDesc& c = desc_.short_convolution;
    step::Product first = product(c.inner, Rows::stream);
    multiply(first, c.before, Rows::channel_gate);
    multiply(first, c.after, Rows::mixer_gate);
    multiply(first, c.inner, Rows::channels);
    add(std::move(first), true);
    step::Convolve convolve;
    convolve.channels = {Rows::channels, c.channels};
    convolve.before = {Rows::channel_gate, c.channels};
    convolve.after = {Rows::mixer_gate, c.channels};
    convolve.to = {Rows::mixed, c.channels};
    convolve.taps = vector(LayerVector::taps);
    convolve.channel_bias = vector(LayerVector::taps_bias);
    add(std::move(convolve));
    add_exit(product(c.o, Rows::mixed), c.o, desc_.after_attention);
  }

  // Router, shared expert and experts read the same input, so it is made once.
  void add_experts() {
    const ExpertsDesc& e = desc_.experts;
    if (e.apart()) return add_experts_apart();
    const MlpDesc& shared = desc_.mlp;
    const bool has_shared = shared.up >= 0;
    step::Product first = product(e.router, Rows::stream);
    multiply(first, e.router, Rows::router);
    if (has_shared) {
      if (shared.gate >= 0) multiply(first, shared.gate, Rows::gate);
      multiply(first, shared.up, Rows::up);
    }
    if (e.shared_gate >= 0) multiply(first, e.shared_gate, Rows::share);
    const Operand from = first.from;
    const Norm in_front = first.norm;
    const int input = first.input;
    add(std::move(first));
    add_route();
    add(step::Experts{e, false, input, desc_.matrix(e.down(0)).input, from, in_front, gate_rule()});
    if (has_shared) {
      step::Product down = gated_product(shared.down);
      multiply(down, shared.down, Rows::branch);
      add(std::move(down));
    }
    step::AddExperts sum;
    sum.experts = e;
    sum.shared = shared.width > 0;
    if (e.shared_gate >= 0) sum.share = {Rows::share, 1};
    sum.branch = branch();
    const bool plain = !desc_.after_mlp.present();
    if (plain) {
      sum.to = stream();
      sum.scale = desc_.branch_scale;
    }
    add(std::move(sum));
    if (!plain) add_branch(desc_.after_mlp, !desc_.embedding.present());
  }

  void add_route() {
    const ExpertsDesc& e = desc_.experts;
    add(step::Route{e,
                    {Rows::router, e.count},
                    vector(LayerVector::choice_bias),
                    vector(LayerVector::expert_factors)});
  }

  // Adds the experts, whose sum waits in rows of its own, and then the MLP beside them (LayerDesc
  // with ExpertsDesc::apart()).
  void add_experts_apart() {
    const ExpertsDesc& e = desc_.experts;
    step::Product router = product(e.router, Rows::stream);
    multiply(router, e.router, Rows::router);
    add(std::move(router));
    add_route();
    const step::Product own = product(e.gate(0), Rows::stream);
    add(step::Experts{e, true, own.input, desc_.matrix(e.down(0)).input, own.from, own.norm,
                      gate_rule()});
    const Operand routed{Rows::routed, config_.hidden};
    step::AddExperts sum;
    sum.experts = e;
    sum.branch = routed;
    add(std::move(sum));
    add_mlp_to_branch();
    add(step::NormRows{branch(), norm(e.after_shared)});
    add(step::AddBranch{routed, branch(), norm(e.after)});
    add_branch(desc_.after_mlp, !desc_.embedding.present());
  }

  void add_mlp_to_branch() {
    add_gate_and_up();
    step::Product down = gated_product(desc_.mlp.down);
    multiply(down, desc_.mlp.down, Rows::branch);
    add(std::move(down));
  }

  void add_gate_and_up() {
    const MlpDesc& mlp = desc_.mlp;
    step::Product first = product(mlp.up, Rows::stream);
    if (mlp.gate >= 0) multiply(first, mlp.gate, Rows::gate);
    multiply(first, mlp.up, Rows::up);
    add(std::move(first));
  }

  void add_mlp() {
    if (experts_elsewhere(desc_)) return add_mlp_to_branch();
    if (!desc_.parallel) {
      center(desc_.input_of(desc_.matrix(desc_.mlp.up)).norm, false);
      add_gate_and_up();
    }
    add_exit(gated_product(desc_.mlp.down), desc_.mlp.down, desc_.after_mlp);
  }

  // Adds what the layer's embedding of the token contributes, gated by the stream.
  void add_embedding() {
    const LayerEmbeddingDesc& e = desc_.embedding;
    step::Product gate = product(e.gate, Rows::stream);
    multiply(gate, e.gate, Rows::gate);
    add(std::move(gate));
    step::Product out = product(e.out, Rows::gate);
    out.up = {Rows::layer_embedding, e.width, config_.layer_embedding.cols, index_ * e.width};
    out.gate = gate_rule();
    multiply(out, e.out, Rows::branch);
    add(std::move(out));
    add_branch(e.after, true);
  }

  const ModelConfig& config_;
  const LayerDesc& desc_;
  const int index_;
  const bool is_tail_;
  ModelSteps& all_;
  LayerSteps& layer_;
};

// Adds the steps of the embedding, and of the embeddings of layers: the rows of their table, and
// the normed product of the embedding with layer 0's matrix.
void add_embed(const ModelConfig& config, ModelSteps& all) {
  const auto add = [&](auto kind, int layer) {
    Step& step = all.embed.emplace_back();
    step.op = std::move(kind);
    step.layer = layer;
  };
  const Operand stream{Rows::stream, config.hidden};
  const bool joins = !config.layers.empty() && config.layers.front().join.present();
  add(step::Embed{joins ? joined_token(config) : stream, false, config.embedding_scale}, -1);
  const TokenTableDesc& table = config.layer_embedding;
  if (!table.present()) return;
  const LayerDesc& first = config.layers.front();
  const LayerEmbeddingDesc& e = first.embedding;
  const Operand to{Rows::layer_embedding, table.cols}, projected{Rows::up, table.cols};
  add(step::Embed{to, true, table.scale}, -1);
  step::Product product;
  product.input = first.matrix(e.project).input;
  product.from = stream;
  product.outputs.push_back({e.project, projected});
  add(std::move(product), 0);
  const int gain = find_vector(all.layers.front().vectors, e.norm.weight);
  add(step::AddBranch{projected, to, {gain, e.norm.width, e.norm.eps}}, 0);
}

void add_head(const ModelConfig& config, LayerSteps& head) {
  const NormDesc& desc = config.head_input.norm;
  if (desc.present())
    head.vectors.push_back(
        {desc.weight, 1, desc.width, desc.gain_offset, VectorDesc::Form::stored, true});
  const Norm norm = desc.present() ? Norm{0, desc.width, desc.eps} : Norm();
  head.inputs.push_back({norm, {}});
  head.matrices.resize(1);
  head.steps.emplace_back().op = step::Logits{{Rows::stream, config.hidden},
                                              {Rows::logits, config.vocab},
                                              norm,
                                              config.logit_scale,
                                              config.logit_cap};
}

}  // namespace

bool experts_elsewhere(const LayerDesc& layer) {
  return !layer.experts.present() && layer.experts.chosen > 0;
}

Operand joined_token(const ModelConfig& config) {
  const int64_t width = config.hidden;
  return {Rows::pair, width, 2 * width, config.layers.front().join.stream_first ? width : 0};
}

Operand joined_stream(const ModelConfig& config) {
  const int64_t width = config.hidden;
  return {Rows::pair, width, 2 * width, config.layers.front().join.stream_first ? 0 : width};
}

ModelSteps make_steps(const ModelConfig& config) {
  ModelSteps all;
  all.layers.resize(config.layers.size());
  for (size_t i = 0; i < config.layers.size(); ++i)
    LayerBuilder(config, static_cast<int>(i), all).build();
  add_embed(config, all);
  if (!config.head.weight.empty()) add_head(config, all.head);
  return all;
}

}  // namespace walsh
