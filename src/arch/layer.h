// Describes a decoder layer as data: its activations, the matrices that read them, and how the
// results are combined. Names, shapes, rotations, balancing, calibration, placement, memory and
// operation counts are derived from it. Only the forward pass gives the parts a meaning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arch/attention_options.h"

namespace walsh {

// Computes y = x / rms(x) * factor * (gain_offset + weight), over `width` values. If it is
// `centered`, x is without its mean (LayerNorm).
struct NormDesc {
  std::string weight;  // tensor [width]; empty: no norm
  int64_t width = 0;
  float eps = 0;
  float gain_offset = 0;  // 1 if checkpoints store the gain minus one
  float factor = 1;
  bool centered = false;

  bool present() const { return !weight.empty(); }
};

// The outputs of this matrix become an activation, each multiplied by a factor that does not depend
// on it (v before o: a weighted mean over positions; up before down: the gate). Therefore the
// channels of the activation can be scaled by scaling rows of this matrix. Channel c comes from row
// c / (dim * repeat) * dim + c % dim.
struct Feeder {
  std::string matrix, bias;  // empty: no feeder
  int64_t dim = 1, repeat = 1;

  int64_t row(int64_t channel) const { return channel / (dim * repeat) * dim + channel % dim; }
};

// The rows (outputs) or columns (inputs) of a matrix have this basis when a rotation is folded into
// the residual stream (quantize/source/fold.h).
enum class Basis : uint8_t {
  own,       // that of the checkpoint
  residual,  // the one orthogonal matrix of the residual stream
  heads      // one orthogonal matrix per key-value head
};

// Matrices read these values. All matrices that read an activation share its rotation and its
// channel balancing.
struct ActivationDesc {
  std::string name;  // e.g. "layers.0.attention"; determines the seed of its rotation
  int64_t width = 0;
  NormDesc norm = {};  // applied before it, if present
  Basis basis = Basis::own;
  Feeder feeder = {};
};

struct MatrixDesc {
  std::string weight;  // tensor [rows, cols]
  std::string bias;    // tensor [rows], or empty
  int64_t rows = 0, cols = 0;
  int input = 0;  // index of the activation that it reads
  Basis outputs = Basis::own;
  bool plain = false;  // never coded: a router, whose choices rounding would change
  int expert = -1;     // the expert that it belongs to; -1: none
};

// This function is applied to a gate.
enum class GateFunction : uint8_t {
  silu,          // x / (1 + exp(-x))
  gelu_tanh,     // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  clamped_silu,  // x / (1 + exp(-slope x)) of x = min(gate, limit), times 1 + up, up being cut at
                 // both limits
  relu           // max(x, 0)
};

// In multi-head latent attention (DeepSeek-V2), the keys and values of all heads are products of
// one short vector per position, the latent, which is normalized first. The first `rope_dim` values
// of a head's query and key are rotated. For keys these come from a separate product of the input
// and are the same for all heads.
//
// The cache holds the latent and the shared key, as one head for all queries: [latent, shared key],
// whose first `rank` values are its value. Queries go to latents by the transposed parts of k that
// their heads have, and what attention gives leaves latents by the heads' parts of v.
struct LatentDesc {
  int64_t rank = 0;  // values of the latent; 0: no latent attention
  // The latent of the queries has this size; 0: queries are a product of the input.
  int64_t query_rank = 0;
  int64_t rope_dim = 0;   // part of head_dim
  int64_t value_dim = 0;  // values per head that `o` reads, at most head_dim
  // These matrices are [query_rank, hidden] (-1: none), [rank, hidden] and [rope_dim, hidden]. Of
  // the attention's matrices, q reads the latent of queries; k [heads * (head_dim - rope_dim),
  // rank] and v [heads * value_dim, rank] read the normalized latent.
  int query_down = -1, down = -1, shared_key = -1;

  bool present() const { return rank > 0; }
};

// Describes softmax attention over the positions of a sequence. Query head h reads key-value head h
// / (heads / kv_heads).
struct AttentionDesc : AttentionOptions {
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;  // a multiple of 8
  int rope = -1;         // index into ModelConfig::ropes; -1: queries and keys are not rotated
  NormDesc q_norm = {}, k_norm = {};  // over the head_dim values of each head, or over all heads
  bool norms_turned = false;          // these norms are behind the rotation, not in front of it
  // Rotated queries and keys are divided by sqrt(mean square of their head + this); 0: they are
  // not.
  float unit_eps = 0;
  // Values are divided by sqrt(mean square of their head + this); 0: they are not.
  float value_eps = 0;
  // This layer attends to the keys and values of that earlier one; -1: it has its own. If it has
  // none, there are no matrices k and v, and no norm of keys.
  int cache_of = -1;
  // Queries at position p are multiplied by 1 + growth log(1 + floor((p + 1) / growth_step)).
  float growth = 0;
  int64_t growth_step = 1;
  // This tensor [heads] has one logit per head, which takes part in the softmax but has no value.
  // Empty: no sinks.
  std::string sinks = {};
  // The matrix q gives, for each head, head_dim values of a query and then as many values of a
  // gate. The output of the head is multiplied by the sigmoid of its gate.
  bool gated = false;
  LatentDesc latent = {};
  int q = -1, k = -1, v = -1, o = -1;  // without v, values are what k gives

  bool present() const { return heads > 0; }
  bool has_cache() const { return present() && cache_of < 0; }
  int64_t query_width() const { return heads * head_dim; }
  int64_t query_rows() const { return gated ? 2 * query_width() : query_width(); }
  int64_t kv_width() const { return kv_heads * head_dim; }
  // Returns how many heads of keys the cache has, and how many values each has. Latent attention
  // has one head, and the beginning of its key is its value.
  int64_t cache_heads() const { return latent.present() ? 1 : kv_heads; }
  int64_t cache_dim() const { return latent.present() ? latent.rank + latent.rope_dim : head_dim; }
  // Return how many numbers the cache keeps of a position, as keys and as values.
  int64_t cached_keys() const { return has_cache() ? cache_heads() * cache_dim() : 0; }
  int64_t cached_values() const { return latent.present() ? 0 : cached_keys(); }
  // Returns the number of values that o reads.
  int64_t value_width() const { return heads * (latent.present() ? latent.value_dim : head_dim); }
  // Returns whether the norms are over whole rows. Where there are two, both or neither are.
  bool norms_all_heads() const { return q_norm.present() && q_norm.width != head_dim; }
};

// Describes a mixer with the gated delta rule (Yang, Kautz and Hatamizadeh 2024). In place of keys
// and values of all positions, every value head has a state S [key_dim, value_dim]: S <- d S + k
// (strength (v - (d S)^T k))^T, and its output is S^T q, with d = exp(-exp(rate) softplus(a +
// bias)) and strength = sigmoid(b). q, k and v come from a convolution over the last `taps`
// positions, followed by silu; every query and key is divided by its length, and queries by
// sqrt(key_dim) as well. Value head h reads the queries and keys of head h / (value_heads /
// key_heads). The output of a head is normalized, then multiplied by silu(z).
struct DeltaNetDesc {
  int64_t key_heads = 0, value_heads = 0;  // key_heads divides value_heads; 0: no delta net
  int64_t key_dim = 0, value_dim = 0;      // per head, multiples of 16
  int64_t taps = 0;                        // of the convolution: 2 to 16
  std::string convolution;                 // tensor [channels, taps], the newest position last
  std::string rate, bias;                  // tensors [value_heads]
  NormDesc norm = {};                      // over the value_dim values of each head
  // The rows of qkv are queries, keys and values; a and b have one row per value head.
  int qkv = -1, z = -1, b = -1, a = -1, o = -1;

  bool present() const { return value_heads > 0; }
  int64_t group() const { return value_heads / key_heads; }
  int64_t key_width() const { return key_heads * key_dim; }
  int64_t value_width() const { return value_heads * value_dim; }
  int64_t channels() const { return 2 * key_width() + value_width(); }
};

// Describes a mixer that is a short convolution between two gates (LFM2): o(after(x) *
// convolution(before(x) * inner(x))), where the convolution is over the last `taps` positions.
struct ShortConvolutionDesc {
  int64_t channels = 0;     // 0: no such mixer
  int64_t taps = 0;         // 2 to 16
  std::string convolution;  // tensor [channels, taps], the newest position last
  std::string bias;         // tensor [channels], added to what the convolution gives; or empty
  int before = -1, after = -1, inner = -1, o = -1;

  bool present() const { return channels > 0; }
};

// The MLP is down(function(gate(x)) * up(x)). Without a matrix `gate`, what `up` gives is its own
// gate.
struct MlpDesc {
  int64_t width = 0;  // 0: no MLP; there may be experts
  GateFunction function = GateFunction::silu;
  float slope = 1, limit = 0;  // of clamped_silu
  int gate = -1, up = -1, down = -1;
};

// Says how the experts of a token and their weights are chosen. The scores are the softmax of the
// router's logits, or the sigmoid of each.
struct RoutingDesc {
  bool sigmoid = false;
  std::string bias;  // tensor [experts], added to the scores for the choice only; empty: none
  // In the end the weight of each expert is multiplied by its value in this tensor [experts];
  // empty: by nothing.
  std::string factors;
  // Consecutive experts form groups of equal size, and only the `groups_chosen` best groups take
  // part. The score of a group is the sum of its `group_best` highest scores.
  int64_t groups = 1, groups_chosen = 1, group_best = 1;
  bool normalized = true;  // the weights (scores of the chosen experts) are divided by their sum
  float scale = 1;         // and multiplied by this
  bool of_input = false;   // a weight multiplies the input of its expert instead of its output
};

// The experts give the sum over the chosen ones, e, of weight_e * down_e(function(gate_e(x)) *
// up_e(x)). All experts read one activation, which may be that of the router; the inputs of all
// down matrices are one activation, too.
struct ExpertsDesc {
  int64_t count = 0;   // 0: the layer has no experts
  int64_t chosen = 0;  // per token
  int64_t width = 0;   // of each expert
  RoutingDesc routing;
  int router = -1;       // matrix [count, hidden]
  int shared_gate = -1;  // matrix [1, hidden] whose sigmoid multiplies the output of `mlp`; -1: 1
  int first = -1;        // matrix: gate, up and down of expert 0, then those of expert 1, ...
  // These norms are applied to the sum, and to what `mlp` gives, before they are added.
  NormDesc after = {}, after_shared = {};

  bool present() const { return count > 0; }
  // Returns whether experts, router and `mlp` have inputs of their own.
  bool apart() const { return after.present(); }
  int gate(int64_t expert) const { return first + static_cast<int>(3 * expert); }
  int up(int64_t expert) const { return gate(expert) + 1; }
  int down(int64_t expert) const { return gate(expert) + 2; }
};

// Each layer may have an embedding of the token (Gemma 3n): x += after(out(function(gate(x)) * e)),
// where e is the layer's part of the sum of two rows: what a table has for the token
// (ModelConfig::layer_embedding) and the normed product of a matrix with the token's embedding.
// Layer 0 has that matrix, which is for all layers.
struct LayerEmbeddingDesc {
  int64_t width = 0;  // of one layer; 0: there are none
  int gate = -1, out = -1;
  NormDesc after = {};
  int project = -1;    // of layer 0
  NormDesc norm = {};  // of layer 0: over the values of one layer

  bool present() const { return width > 0; }
};

// This stands in front of a layer that predicts further tokens (ModelConfig::ahead): x =
// project([token(e), stream(y)]), where e is the embedding of a token and y what the model gave for
// the token before.
struct JoinDesc {
  NormDesc token = {}, stream = {};
  bool stream_first = false;  // [stream(y), token(e)]
  int project = -1;           // matrix [hidden, 2 hidden]

  bool present() const { return project >= 0; }
};

// A layer stores these vectors besides matrices and their biases.
struct VectorDesc {
  // This says how stored values become the values that are used.
  enum class Form : uint8_t {
    stored,
    exponential,  // e to the power of each value
    transposed,   // [cols][rows] of a tensor [rows, cols]
    constant      // nothing is stored: every value is `offset`
  };

  std::string name;  // tensor [rows, cols]; for constants, a name that no tensor has
  int64_t rows = 1, cols = 0;
  float offset = 0;  // added to the stored values, which are then multiplied by the factor
  Form form = Form::stored;
  bool is_gain = false;  // whether it is the gain of a norm
  float factor = 1;

  int64_t size() const { return rows * cols; }
};

// Constants have these names: the gain of heads that are divided by the root of their mean square,
// and the gains of a delta net's queries and keys, which are divided by their length.
inline constexpr const char* kUnitGain = "unit gain";
inline constexpr const char* kQueryLengthGain = "gain of query lengths";
inline constexpr const char* kKeyLengthGain = "gain of key lengths";

// A layer computes x += scale * after_attention(o(mixer(input))); x += scale *
// after_mlp(down(...)). If they are `parallel`, both read the same activation, made of the x in
// front of the layer. The mixer is attention, a delta net or a short convolution. In a layer with
// experts, their sum is added to the output of `mlp`, which is the shared expert. Then comes the
// layer's embedding of the token, if there is one.
struct LayerDesc {
  std::vector<ActivationDesc> activations;  // in the order of the computation
  std::vector<MatrixDesc> matrices;         // in the order of the computation
  JoinDesc join;
  DeltaNetDesc delta_net;                  // its matrices are indices into `matrices`,
  ShortConvolutionDesc short_convolution;  // and so are those of this,
  AttentionDesc attention;                 // of attention
  MlpDesc mlp;                             // and gate, up and down
  ExpertsDesc experts;                     // their gates use the function of `mlp`
  LayerEmbeddingDesc embedding;            // and so does its gate
  // These norms are applied to what a branch adds to the residual stream.
  NormDesc after_attention = {}, after_mlp = {};
  float branch_scale = 1;  // multiplies what a branch adds to the residual stream
  bool parallel = false;
  // The residual stream is multiplied by this tensor [1] behind the layer; empty: it is not.
  std::string stream_factor = {};

  // Returns whether a sequence has a state in this layer, besides keys and values.
  bool has_state() const { return delta_net.present() || short_convolution.present(); }
  const MatrixDesc& matrix(int index) const { return matrices[static_cast<size_t>(index)]; }
  const ActivationDesc& input_of(const MatrixDesc& m) const {
    return activations[static_cast<size_t>(m.input)];
  }
  // Returns whether a token is multiplied by the matrix, where the first experts stand for the
  // chosen ones: all experts have the same shapes.
  bool of_one_token(const MatrixDesc& m) const { return m.expert < experts.chosen; }
};

// Returns all vectors of a layer. Names, loading, memory and the steps of the forward pass all
// follow this list. Gains come first, in the order of the computation.
std::vector<VectorDesc> layer_vectors(const LayerDesc& layer);
// Returns the index of a vector in such a list, -1 if there is none of this name.
int find_vector(const std::vector<VectorDesc>& vectors, const std::string& name);

}  // namespace walsh
