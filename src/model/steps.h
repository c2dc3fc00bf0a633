// Describes a model as one list of steps that executors run. A step names the rows that it reads
// and writes, with their widths, and the matrices and vectors of its layer by index. LayerSteps
// says beside it how matrices are stored and in which forms their inputs are prepared. Executors
// run the list, record it, or make one launch of it. Loading, the plan of memory, parts on two
// devices, calibration, operation counts and refusals read it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "arch/config.h"
#include "codec/weight_source.h"
#include "kernels/ops.h"

namespace walsh {

struct LoadOptions;

// Names the values that a device keeps for every row of a batch (a token), as float32.
enum class Rows : uint8_t {
  stream,  // Branches add their output to this residual stream.
  branch,  // A branch leaves here what will be added to it.
  // It has the queries of all heads; the gates of a head, if any, are after its queries.
  query,
  // It has them without gates; if the cache has latents, a head is as wide as its keys.
  head_query,
  // It has the keys of all heads; in latent attention the latent, then the shared key.
  key,
  value,         // It has the values of all heads.
  latent,        // It is the latent of keys and values before its norm.
  latent_mixed,  // Attention to latents gives a latent per head.
  query_latent,  // It is the latent of queries.
  shared_key,    // It is the turned part of the keys in latent attention, one for all heads.
  // It has queries, keys and values of a delta net, or what a short convolution reads.
  channels,
  decay,            // For each value head it has a, then the logarithm of the decay.
  strength,         // For each value head it has b, then the strength of its update.
  mixed,            // Attention, a delta net or a short convolution writes its result here.
  mixer_gate,       // Each value of `mixed` has a gate here.
  channel_gate,     // A short convolution multiplies its input by these gates.
  gate,             // The MLP's product of gate writes here.
  up,               // The MLP's product of up writes here.
  router,           // It has the logits of the experts.
  share,            // Its sigmoid multiplies what the shared expert adds.
  routed,           // It is the sum of experts, if that has a norm of its own.
  layer_embedding,  // It has the token's embeddings of all layers, one after the other.
  // A layer with a join reads the embedding of a token and a stream, side by side.
  pair,
  logits
};
inline constexpr size_t kRowKinds = static_cast<size_t>(Rows::logits) + 1;

// Names `width` values of every row of a kind, from the value `first` on. Width 0 means that the
// step has no such operand. Packed rows are `stride` values apart.
struct Operand {
  Rows rows = Rows::stream;
  int64_t width = 0, stride = 0, first = 0;

  Operand() = default;
  Operand(Rows kind, int64_t values) : Operand(kind, values, values) {}
  Operand(Rows kind, int64_t values, int64_t apart, int64_t from = 0)
      : rows(kind), width(values), stride(apart), first(from) {}
  bool present() const { return width > 0; }
  // Returns whether rows keep their places in the buffer. Rows of other kinds, which a block
  // computes, are packed: the first one is the first row that is wanted.
  bool keeps_places() const { return rows == Rows::stream || rows == Rows::layer_embedding; }
};

// Computes x / rms(x) * gain over each `width` values. `gain` is a vector of the layer; -1 means
// that there is no such norm.
struct Norm {
  int gain = -1;
  int64_t width = 0;
  float eps = 0;

  bool present() const { return gain >= 0; }
};

// Computes gate = function(gate) * up (GateFunction). Gate and up may be the same rows.
struct GateRule {
  GateFunction function = GateFunction::silu;
  float slope = 1, limit = 0;
};

struct HeadShape {
  int64_t heads = 0, kv_heads = 0, dim = 0;

  int64_t query_width() const { return heads * dim; }
  int64_t kv_width() const { return kv_heads * dim; }
};

namespace step {

// Computes to = scale * a row of the embedding, or of the table of layers.
struct Embed {
  Operand to;
  bool of_layers = false;
  float scale = 1;
};

// Computes to = matrix(input) for each output. The input, one of the layer's, is made from the rows
// `from`, which are normed or gated by `up`.
struct Product {
  struct Output {
    int matrix = 0;
    Operand to;
  };

  int input = 0;
  Operand from, up;
  Norm norm;
  GateRule gate;
  std::vector<Output> outputs;
  bool add = false;  // The product is added to `to`.
};

// Prepares heads of queries and keys in this order: separates queries from their gates; applies
// norms, over a head or over all heads; applies rope and unit length; multiplies queries by the
// factors of their positions. Keys and values then go to the cache. Without `key` there are only
// queries.
struct PrepareHeads {
  HeadShape shape;
  Operand query, key, value;
  // The product of q gives `query`. Queries go to `to`, which is `query` without `gates`.
  Operand to, gates;
  // In latent attention `key` becomes the normed latent and, after it, the turned shared key.
  Operand latent, shared_key;
  int latent_input = -1;  // The normed latent is this input of the layer.
  int cache = 0;          // Keys and values go to the cache of this layer.
  // If true, `value` is a copy of `key` before its norm and rope.
  bool values_are_keys = false;
  HeadOptions options;
  Norm query_norm, key_norm;
  int unit_gain = -1;  // It is a vector of ones [dim]; -1: no norm has it.
  int rope = -1;       // It is an index into ModelConfig::ropes; -1: nothing is turned.
  int factors = -1;    // It is an index into ModelSteps::query_factors; -1: there are none.

  bool norms_all_heads() const { return query_norm.present() && query_norm.width != shape.dim; }
  // These return the norms of the options: of queries and keys after their rope, and of values.
  Norm unit() const { return norm_of(options.unit_eps); }
  Norm value_norm() const { return value.present() ? norm_of(options.value_eps) : Norm(); }
  Norm norm_of(float eps) const { return eps != 0 ? Norm{unit_gain, shape.dim, eps} : Norm(); }
};

// Multiplies each head by its part [rows, cols] of the matrix. The product takes the values of the
// head from number `kept` on; the values before these are copied after the result. The parts lie
// below each other in the matrix, or, if it is transposed, their transposes do.
struct MultiplyHeads {
  int matrix = 0;
  bool transposed = false;
  int64_t heads = 0, rows = 0, cols = 0, kept = 0;
  Operand from, to;
};

// Computes to = attention of queries to the cache of layer `cache`. Its values have value_dim
// numbers.
struct Attend {
  int cache = 0;
  HeadShape shape;
  Operand query, to;
  AttentionOptions options;
  int sinks = -1;  // It is a vector [heads] of learned logits; -1: none.
  int64_t value_dim = 0;
};

// Convolves channels over the last positions of the sequence, and keeps the last rows in its state.
// For a delta net it also turns channels into the queries, keys and values of the delta rule, and
// makes its decay and strength. A short convolution has gates: to = after * (channel_bias +
// convolution of before * channels).
struct Convolve {
  DeltaNetDesc net;
  Operand channels, decay, strength;
  // These are vectors of the layer; -1: none.
  int taps = -1, channel_bias = -1, rate = -1, bias = -1, query_scale = -1, key_scale = -1;
  // Only a short convolution has these.
  Operand before, after, to;

  bool gated() const { return to.present(); }
};

// Computes to = the delta rule of channels, which changes the sequence's state.
struct DeltaRule {
  DeltaNetDesc net;
  Operand channels, decay, strength, to;
  int skip = -1;  // It is a vector [value heads]; -1: none.
};

// Computes x = x * sigmoid(gate), or norm(x) * silu(gate), for heads of `dim` values. With
// `gate_first` it computes norm(x * silu(gate)), whose gain has one value for each value of the
// row.
struct GateHeads {
  Operand x, gate;
  int64_t heads = 0, dim = 0;
  Norm norm;
  bool gate_first = false;
};

// Chooses the experts of every row by its logits (model/routing.h).
struct Route {
  ExpertsDesc experts;
  Operand logits;
  int bias = -1, factors = -1;  // They are vectors [experts]; -1: none.
};

// Computes down(function(gate) * up) for every row and each of its experts. The experts prepare
// their input, or read the one that the router's product has prepared, so no step in between may
// change that.
struct Experts {
  ExpertsDesc experts;
  bool makes_input = false;
  int input = 0, gated_input = 0;  // Gate and up read `input`, down reads `gated_input`.
  Operand from;
  Norm norm;
  GateRule gate;
};

// Computes branch = the sum of weight * expert over the chosen ones. If `branch` holds the output
// of a shared expert, that is added, times sigmoid(share) if there is one. With `to` the sum is
// then scaled and added to `to`.
struct AddExperts {
  ExpertsDesc experts;
  bool shared = false;
  Operand share, branch, to;
  float scale = 1;
};

// Computes x = x - mean(x). A norm of these rows is then a LayerNorm.
struct CenterRows {
  Operand x;
};

// Computes x = norm(x).
struct NormRows {
  Operand x;
  Norm norm;
};

// Computes to = factor * (to + scale * norm(branch)).
struct AddBranch {
  Operand branch, to;
  Norm norm;
  float scale = 1;
  int factor = -1;  // It is a vector [1]; -1: the factor is 1.
};

// Computes to = cap(scale * head(norm(from))).
struct Logits {
  Operand from, to;
  Norm norm;
  float scale = 1, cap = 0;
};

}  // namespace step

struct Step {
  std::variant<step::Embed, step::Product, step::PrepareHeads, step::MultiplyHeads, step::Attend,
               step::Convolve, step::DeltaRule, step::GateHeads, step::Route, step::Experts,
               step::AddExperts, step::CenterRows, step::NormRows, step::AddBranch, step::Logits>
      op;
  int layer = -1;  // It is the index of a layer; -1: embedding and head.
  // If true, rows whose logits nobody wants need not take part. This holds for the last layer,
  // except for what goes to the cache or to a state.
  bool only_wanted = false;
  // If true, the step runs even if no row is wanted, because it changes the state.
  bool changes_state = false;
};

// Returns all operands that a step reads or writes.
std::vector<Operand> operands_of(const Step& step);
// Returns the matrices of its layer that a step multiplies with, as often as it uses them.
std::vector<int> matrices_of(const Step& step);

// Describes one form of an activation that some matrix reads, for example rotated and as int8.
struct PreparedInput {
  InputTransform transform;  // Its rotator is set in a loaded model.
  Rotation rotation = kNoRotation;
  int planes = 0;  // It is the number of int8 planes; 0: float32.
  int group = 0;   // An int8 scale covers this many values.
  // It is an index into ModelSteps::buffers. The forms of an input have different ones.
  int buffer = 0;
};

// Lists the forms of one activation. Several matrices may read it; every distinct form is made once
// per token.
struct Input {
  Norm norm;
  std::vector<PreparedInput> forms;
};

// Describes a workspace to which prepared inputs are written. All layers share it.
struct BufferShape {
  int64_t cols = 0;
  int planes = 0;
  int group = 0;

  bool operator==(const BufferShape&) const = default;
};

// Says how a matrix is stored and which forms of its input its passes read. Without a format this
// is not known yet.
struct MatrixForm {
  StoredForm stored;
  int input[2] = {0, 0};
  // If by_head, a MultiplyHeads uses the matrix: it is decoded when it is loaded, and reads no form
  // of an input.
  bool by_head = false, transposed = false;
  int64_t heads = 0;

  // Returns the format of the matrix in a loaded model.
  const Format* in_memory() const {
    return by_head && !stored.format->dense ? &get_format("f16") : stored.format;
  }
};

// Holds the steps of a layer, and its inputs, matrices and vectors, with the indices of its
// description.
struct LayerSteps {
  std::vector<Input> inputs;         // They are in the order of LayerDesc::activations.
  std::vector<MatrixForm> matrices;  // They are in the order of LayerDesc::matrices.
  std::vector<VectorDesc> vectors;   // They are in the order of layer_vectors().
  std::vector<Step> steps;
};

// Says what factors queries have by their position: those of a rope, and those that grow
// (AttentionDesc).
struct QueryFactors {
  int rope = -1;  // The config of this rope has them; -1: none.
  float growth = 0;
  int64_t growth_step = 1;

  bool operator==(const QueryFactors&) const = default;
};

struct ModelSteps {
  // These steps turn tokens into what the layers read. Their matrices and vectors are those of
  // layer 0.
  std::vector<Step> embed;
  std::vector<LayerSteps> layers;
  LayerSteps head;  // It has one input, one matrix, and the gain of the final norm.
  StoredForm embedding, layer_embedding;
  std::vector<BufferShape> buffers;
  std::vector<QueryFactors> query_factors;  // No two of them are equal.

  const LayerSteps& of(int layer) const {
    return layer < 0 ? head : layers[static_cast<size_t>(layer)];
  }
  // Returns, for each kind of rows, the largest number of values between neighbouring rows.
  std::array<int64_t, kRowKinds> strides() const;
  bool uses(Rows rows) const;
};

// These return the two halves of the pair that a join reads: the embedding of the token, and the
// stream that the batch brings.
Operand joined_token(const ModelConfig& config);
Operand joined_stream(const ModelConfig& config);
// Returns whether the other part of the model has the layer's experts (model/split.h).
bool experts_elsewhere(const LayerDesc& layer);
// Returns the list of a model or of a part of one (model/split.h). A layer of a part may lack its
// mixer, or have nothing. If it has the shared expert but no others, it leaves that expert's output
// in `branch`; if it has the others but not the shared one, it finds that output there.
ModelSteps make_steps(const ModelConfig& config);
// Returns the list with the forms of all matrices that the source has. The options say how their
// inputs are prepared.
ModelSteps make_steps(const ModelConfig& config, const WeightSource& source,
                      const LoadOptions& options);

// Returns the input that pass `pass` of a coded matrix reads, with its columns and int8 planes; 0
// planes are float rows. `folded` says that the source's activations are rotated already.
BufferShape prepared_shape(const StoredForm& form, int pass, int64_t cols, bool folded,
                           const LoadOptions& options);
// Returns whether a matrix that is stored in this form is rotated.
bool is_rotated(const StoredForm& form);

}  // namespace walsh
