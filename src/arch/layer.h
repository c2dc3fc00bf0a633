// Describes a decoder layer as data: its activations, the matrices that read them, and how results
// are combined. Names, shapes, rotations, balancing, calibration, placement, memory and operation
// counts follow from it. Only the forward pass knows what the parts mean.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "arch/attention_options.h"
#include "arch/delta_net_shape.h"

namespace walsh {

// Computes y = x / rms(x) * factor * (gain_offset + weight) over each `width` values. If it is
// `centered`, the mean is subtracted from x before (LayerNorm).
struct NormDesc {
  std::string weight;  // It names a tensor [width]; if empty, there is no norm.
  int64_t width = 0;
  float eps = 0;
  float gain_offset = 0;  // It is 1 if checkpoints store the gain minus one.
  float factor = 1;
  bool centered = false;

  bool present() const { return !weight.empty(); }
};

// Names the matrix whose outputs become an activation, each multiplied by a factor that does not
// depend on it. v feeds o that way (the factors are a weighted mean over positions), and up feeds
// down (the factor is the gate). Scaling rows of this matrix therefore scales channels of the
// activation. Channel c comes from row c / (dim * repeat) * dim + c % dim.
struct Feeder {
  std::string matrix, bias;  // They name tensors; if empty, there is no feeder.
  int64_t dim = 1, repeat = 1;

  int64_t row(int64_t channel) const { return channel / (dim * repeat) * dim + channel % dim; }
};

// Says in which basis the rows (outputs) or columns (inputs) of a matrix are when a rotation is
// folded into the residual stream (quantize/source/fold.h).
enum class Basis : uint8_t {
  own,  // The basis stays that of the checkpoint.
  // The one orthogonal matrix of the residual stream defines it.
  residual,
  heads  // Each key-value head has an orthogonal matrix.
};

// Describes values that matrices read. All matrices that read an activation share its rotation and
// its channel balancing.
struct ActivationDesc {
  // Identifies the activation, e.g. "layers.0.attention", and determines the seed of its rotation.
  std::string name;
  int64_t width = 0;
  NormDesc norm = {};  // If present, it is applied before.
  Basis basis = Basis::own;
  Feeder feeder = {};
};

struct MatrixDesc {
  std::string weight;  // It names a tensor [rows, cols].
  std::string bias;    // It names a tensor [rows], or nothing.
  int64_t rows = 0, cols = 0;
  int input = 0;  // It is the index of the activation that the matrix reads.
  Basis outputs = Basis::own;
  // If true, the matrix is never coded. Routers are not, because rounding would change their
  // choices.
  bool plain = false;
  int expert = -1;  // It is the expert that has the matrix; -1: none.
};

// Names the function that is applied to a gate.
enum class GateFunction : uint8_t {
  silu,       // x / (1 + exp(-x))
  gelu_tanh,  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  // This is x / (1 + exp(-slope x)) of x = min(gate, limit), times 1 + up, where up is limited to
  // [-limit, limit].
  clamped_silu,
  relu  // max(x, 0)
};

// Describes multi-head latent attention (DeepSeek-V2). The keys and values of all heads are
// products of one short vector per position, the latent, which is normalized first. Rope turns the
// first `rope_dim` values of a head's query and key. For keys these come from a separate product of
// the input, the shared key, which all heads have.
//
// The cache holds the latent and the shared key as one head for all queries: [latent, shared key],
// whose first `rank` values are its value. The transposed parts of k that heads have take queries
// to the space of latents, and the heads' parts of v take the result of attention back from it.
struct LatentDesc {
  int64_t rank = 0;  // The latent has this many values; 0: there is no latent attention.
  // The latent of queries has this many values; 0: queries are a product of the input.
  int64_t query_rank = 0;
  int64_t rope_dim = 0;   // Rope turns this many of the head_dim values.
  int64_t value_dim = 0;  // `o` reads this many values per head, at most head_dim.
  // These are indices of matrices [query_rank, hidden] (-1: none), [rank, hidden] and [rope_dim,
  // hidden]. Of the attention's matrices, q reads the latent of queries; k [heads * (head_dim -
  // rope_dim), rank] and v [heads * value_dim, rank] read the normalized latent.
  int query_down = -1, down = -1, shared_key = -1;

  bool present() const { return rank > 0; }
};

// Describes softmax attention over the positions of a sequence. Query head h reads key-value head h
// / (heads / kv_heads).
struct AttentionDesc : AttentionOptions, HeadOptions {
  int64_t heads = 0;
  int64_t kv_heads = 0;  // It divides heads.
  int64_t head_dim = 0;  // It has to be a multiple of 8.
  // It is an index into ModelConfig::ropes; -1: queries and keys are not turned.
  int rope = -1;
  // These are over the head_dim values of each head, or over all heads.
  NormDesc q_norm = {}, k_norm = {};
  // This layer attends to the keys and values of that earlier layer; -1: it has its own. Without
  // its own there are no matrices k and v, and no norm of keys.
  int cache_of = -1;
  // If true, the matrix q gives, for each head, head_dim values of a query and then as many values
  // of a gate. The output of the head is multiplied by the sigmoid of its gate.
  bool gated = false;
  LatentDesc latent = {};
  int q = -1, k = -1, v = -1, o = -1;  // If there is no v, what k gives are the values, too.

  bool present() const { return heads > 0; }
  bool has_cache() const { return present() && cache_of < 0; }
  int64_t query_width() const { return heads * head_dim; }
  int64_t query_rows() const { return gated ? 2 * query_width() : query_width(); }
  int64_t kv_width() const { return kv_heads * head_dim; }
  // Returns how many heads of keys the cache has, and how many values each has. In latent attention
  // the cache has one head, whose key begins with its value.
  int64_t cache_heads() const { return latent.present() ? 1 : kv_heads; }
  int64_t cache_dim() const { return latent.present() ? latent.rank + latent.rope_dim : head_dim; }
  // These return how many numbers the cache keeps per position as keys, and as values.
  int64_t cached_keys() const { return has_cache() ? cache_heads() * cache_dim() : 0; }
  int64_t cached_values() const { return latent.present() ? 0 : cached_keys(); }
  // Returns the number of values that o reads.
  int64_t value_width() const { return heads * (latent.present() ? latent.value_dim : head_dim); }
  // Returns whether the norms are over whole rows instead of heads. If there are two norms, they
  // agree.
  bool norms_all_heads() const { return q_norm.present() && q_norm.width != head_dim; }
};

// Describes a mixer with the gated delta rule (Yang, Kautz and Hatamizadeh 2024). Instead of keys
// and values of all positions, every value head has a state S [key_dim, value_dim]: S <- d S + k
// (strength (v - (d S)^T k))^T, and its output is S^T q, with d = exp(-exp(rate) softplus(a +
// bias)) and strength = sigmoid(b). q, k and v come from a convolution over the last `taps`
// positions, followed by silu; every query and key is divided by its length, and queries by
// sqrt(key_dim) as well. Value head h reads the queries and keys of head h / (value_heads /
// key_heads). The output of a head is normalized, then multiplied by silu(z).
//
// If it is `additive`, it is a Mamba-2 mixer (Dao and Gu 2024), whose updates do not depend on the
// state: S <- d S + strength k v^T, and the output is S^T q + skip v, with strength = softplus(b +
// bias) within [least_strength, most_strength] and d = exp(-exp(rate) strength). q, k and v, there
// called C, B and x, are not scaled. The output of all heads is multiplied by silu(z), then
// normalized in groups, as many as there are key heads.
struct DeltaNetDesc : DeltaNetShape<int64_t> {
  // It is over the value_dim values of each head. If the mixer is additive, it is over the values
  // of a group, and its weight has value_width() of them.
  NormDesc norm = {};
  // The rows of qkv are the channels; a and b have one row per value head. An additive mixer has no
  // a.
  int qkv = -1, z = -1, b = -1, a = -1, o = -1;
  float least_strength = 0, most_strength = std::numeric_limits<float>::infinity();

  bool present() const { return value_heads > 0; }
};

// Describes a mixer that is a short convolution between two gates (LFM2): o(after(x) *
// convolution(before(x) * inner(x))), where the convolution is over the last `taps` positions.
struct ShortConvolutionDesc {
  int64_t channels = 0;  // 0 means that there is no such mixer.
  int64_t taps = 0;      // The convolution has 2 to 16 taps.
  int before = -1, after = -1, inner = -1, o = -1;

  bool present() const { return channels > 0; }
};

// Describes the MLP down(function(gate(x)) * up(x)). Without a matrix `gate`, what `up` gives is
// its own gate.
struct MlpDesc {
  int64_t width = 0;  // 0 means that there is no MLP; there may be experts.
  GateFunction function = GateFunction::silu;
  float slope = 1, limit = 0;  // clamped_silu uses these.
  int gate = -1, up = -1, down = -1;
};

// Says how the experts of a token are chosen and weighed. The scores are the softmax of the
// router's logits, or the sigmoid of each.
struct RoutingDesc {
  bool sigmoid = false;
  // Consecutive experts form groups of equal size, and only the `groups_chosen` best groups take
  // part. A group's score is the sum of its `group_best` highest scores.
  int64_t groups = 1, groups_chosen = 1, group_best = 1;
  // If true, the weights (the scores of the chosen experts) are divided by their sum.
  bool normalized = true;
  float scale = 1;  // Then weights are multiplied by this.
  // If true, a weight multiplies the input of its expert instead of the output.
  bool of_input = false;
};

// Describes experts, which give the sum over the chosen ones, e, of weight_e *
// down_e(function(gate_e(x)) * up_e(x)). All experts read one activation, which may be the
// router's. The inputs of all down matrices are one activation, too.
struct ExpertsDesc {
  int64_t count = 0;   // 0 means that the layer has no experts.
  int64_t chosen = 0;  // A token gets this many experts.
  int64_t width = 0;   // Each expert has this width.
  RoutingDesc routing;
  int router = -1;  // It is the index of a matrix [count, hidden].
  // It is the index of a matrix [1, hidden]; the sigmoid of its product multiplies the output of
  // `mlp`. -1: the factor is 1.
  int shared_gate = -1;
  // It is the index of the first matrix of gate, up and down of expert 0, then of expert 1, ...
  int first = -1;
  // If false, experts have no gate matrix, and the output of up is its own gate.
  bool gated = true;
  // `after` is applied to the sum, and `after_shared` to the output of `mlp`, before both are
  // added.
  NormDesc after = {}, after_shared = {};

  bool present() const { return count > 0; }
  // Returns whether experts, router and `mlp` have separate inputs.
  bool apart() const { return after.present(); }
  // Returns how many matrices an expert has.
  int each() const { return gated ? 3 : 2; }
  // Without gates, gate() and up() are one matrix.
  int gate(int64_t expert) const { return first + static_cast<int>(each() * expert); }
  int up(int64_t expert) const { return gate(expert) + each() - 2; }
  int down(int64_t expert) const { return gate(expert) + each() - 1; }
};

// Describes a layer's own embedding of the token (Gemma 3n): x += after(out(function(gate(x)) *
// e)). Here e is the layer's part of a sum of two rows: what a table has for the token
// (ModelConfig::layer_embedding), and the normed product of a matrix with the token's embedding.
// Layer 0 has that matrix, which is for all layers.
struct LayerEmbeddingDesc {
  int64_t width = 0;  // A layer has this many values; 0: there are none.
  int gate = -1, out = -1;
  NormDesc after = {};
  int project = -1;    // Layer 0 has this matrix.
  NormDesc norm = {};  // Layer 0 has this norm, over the values of one layer.

  bool present() const { return width > 0; }
};

// Describes what a layer that predicts ahead begins with (ModelConfig::ahead): x =
// project([token(e), stream(y)]). Here e is the embedding of a token, and y is what the model gave
// for the token before.
struct JoinDesc {
  NormDesc token = {}, stream = {};
  bool stream_first = false;  // If true, the pair is [stream(y), token(e)].
  int project = -1;           // It is the index of a matrix [hidden, 2 hidden].

  bool present() const { return project >= 0; }
};

// Describes a vector that a layer stores besides matrices and their biases.
struct VectorDesc {
  // Says how values are computed from the stored ones.
  enum class Form : uint8_t {
    stored,
    exponential,  // They are e to the power of each stored value.
    transposed,   // They are [cols][rows] of a stored tensor [rows, cols].
    constant      // Nothing is stored: every value is `offset`.
  };

  // Names a tensor [rows, cols]; a constant has a name that no tensor has.
  std::string name;
  int64_t rows = 1, cols = 0;
  // It is added to the stored values, which are then multiplied by the factor.
  float offset = 0;
  Form form = Form::stored;
  bool is_gain = false;  // If true, it is the gain of a norm.
  float factor = 1;

  int64_t size() const { return rows * cols; }
};

// These are the names of constants: the gain of heads that are divided by the root of their mean
// square, and the gains of a delta net's queries and keys, which are divided by their length.
inline constexpr const char* kUnitGain = "unit gain";
inline constexpr const char* kQueryLengthGain = "gain of query lengths";
inline constexpr const char* kKeyLengthGain = "gain of key lengths";

// Says which vectors a layer may store besides gains and biases. A layer has those that it names.
enum class LayerVector : uint8_t {
  taps,            // A convolution has them, with the newest position last.
  taps_bias,       // It is added to what the convolution gives.
  decay_rate,      // Its exponential is the rate in the decay of a delta net.
  decay_bias,      // It is added to what makes the decay of a delta net.
  skip,            // The values of a head of an additive delta net are added times this.
  sinks,           // A head has one logit, which takes part in the softmax but has no value.
  choice_bias,     // It is added to the scores of experts, for the choice only.
  expert_factors,  // In the end they multiply the weights of experts.
  stream_factor    // It multiplies the residual stream after the layer.
};

// Describes a layer, which computes x += scale * after_attention(o(mixer(input))), then x += scale
// * after_mlp(down(...)). If the two are `parallel`, both read the same activation, made of the x
// in front of the layer. The mixer is attention, a delta net or a short convolution; a layer may
// lack it, or what follows. In a layer with experts, their sum is added to the output of `mlp`,
// which is the shared expert. Then comes the layer's embedding of the token, if there is one.
struct LayerDesc {
  std::vector<ActivationDesc> activations;  // They are in the order of the computation.
  std::vector<MatrixDesc> matrices;         // They are in the order of the computation.
  JoinDesc join;
  // The matrices of the mixer and the MLP are indices into `matrices`.
  DeltaNetDesc delta_net;
  ShortConvolutionDesc short_convolution;
  AttentionDesc attention;
  MlpDesc mlp;
  ExpertsDesc experts;           // The gates of experts use the function of `mlp`.
  LayerEmbeddingDesc embedding;  // So does its gate.
  // These norms are applied to what the mixer and the MLP add to the residual stream.
  NormDesc after_attention = {}, after_mlp = {};
  // Multiplies what a branch adds to the residual stream.
  float branch_scale = 1;
  bool parallel = false;
  std::map<LayerVector, std::string> vectors;  // They name tensors.

  // Returns whether a sequence has a state in this layer besides keys and values.
  bool has_state() const { return delta_net.present() || short_convolution.present(); }
  const MatrixDesc& matrix(int index) const { return matrices[static_cast<size_t>(index)]; }
  const ActivationDesc& input_of(const MatrixDesc& m) const {
    return activations[static_cast<size_t>(m.input)];
  }
  // Returns whether decoding a token multiplies the matrix. All experts have the same shapes, so
  // the first ones stand for the chosen ones.
  bool of_one_token(const MatrixDesc& m) const { return m.expert < experts.chosen; }
};

// Returns what there is to say of a vector besides its name. It is empty in a layer without the
// part that the vector belongs to.
inline VectorDesc describe_vector(LayerVector vector, const LayerDesc& layer) {
  using Form = VectorDesc::Form;
  const DeltaNetDesc& d = layer.delta_net;
  const ShortConvolutionDesc& c = layer.short_convolution;
  switch (vector) {
    case LayerVector::taps:
      if (d.present()) return {"", d.channels(), d.taps, 0, Form::transposed};
      return {"", c.channels, c.taps, 0, Form::transposed};
    case LayerVector::taps_bias:
      return {"", 1, d.present() ? d.channels() : c.channels};
    case LayerVector::decay_rate:
      return {"", 1, d.value_heads, 0, Form::exponential};
    case LayerVector::decay_bias:
    case LayerVector::skip:
      return {"", 1, d.value_heads};
    case LayerVector::sinks:
      return {"", 1, layer.attention.heads};
    case LayerVector::choice_bias:
    case LayerVector::expert_factors:
      return {"", 1, layer.experts.count};
    case LayerVector::stream_factor:
      return {"", 1, 1};
  }
  return {};
}

// Returns all vectors of a layer. Gains come first, in the order of the computation. Names,
// loading, memory and the steps of the forward pass all follow this list.
std::vector<VectorDesc> layer_vectors(const LayerDesc& layer);
// Returns the index of the vector with this name in such a list; -1 if there is none.
int find_vector(const std::vector<VectorDesc>& vectors, const std::string& name);

}  // namespace walsh
