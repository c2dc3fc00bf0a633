// Describes a model as the one list of steps that executors run. A step names the rows that it
// reads and writes, with their widths, and the matrices and vectors of its layer by their places in
// it; how matrices are stored and in which forms their inputs are made stands beside. Executors run
// the list, record it or make one launch of it; loading, the plan of memory, parts on two devices,
// calibration, counts and refusals read it.
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

// A device keeps these values for every row of a batch (a token), as float32.
enum class Rows : uint8_t {
  stream,           // the residual stream
  branch,           // what a block will add to it
  query,            // of all heads; behind each its gates, where attention has them
  head_query,       // the same without gates; for a cache of latents, of the size of its keys
  key,              // of all heads; of latent attention the latent, then the shared key
  value,            // of all heads
  latent,           // of keys and values, before its norm
  latent_mixed,     // result of attention to latents: a latent per head
  query_latent,     // of queries
  shared_key,       // rotated part of the keys of latent attention, one for all heads
  channels,         // of a delta net: queries, keys, values; or of a short convolution
  decay,            // of each value head: a, then the logarithm of the decay
  strength,         // of each value head: b, then its sigmoid
  mixed,            // result of attention, of the delta net or of the short convolution
  mixer_gate,       // of mixed
  channel_gate,     // of the channels of a short convolution
  gate,             // of the MLP
  up,               // of the MLP
  router,           // the logits of the experts
  share,            // its sigmoid multiplies what the shared expert adds
  routed,           // the sum of experts, where it has a norm of its own
  layer_embedding,  // of the token, of all layers one behind the other
  pair,             // of a join: the embedding of a token and a stream, side by side
  logits
};
inline constexpr size_t kRowKinds = static_cast<size_t>(Rows::logits) + 1;

// An operand is `width` values of every row of a kind, from the value `first` on; width 0: the step
// has no such operand. Where rows are packed, they are `stride` values apart.
struct Operand {
  Rows rows = Rows::stream;
  int64_t width = 0, stride = 0, first = 0;

  Operand() = default;
  Operand(Rows kind, int64_t values) : Operand(kind, values, values) {}
  Operand(Rows kind, int64_t values, int64_t apart, int64_t from = 0)
      : rows(kind), width(values), stride(apart), first(from) {}
  bool present() const { return width > 0; }
  // Returns whether the rows of a batch keep their places: what a block computes besides begins
  // with the first row that is wanted.
  bool keeps_places() const { return rows == Rows::stream || rows == Rows::layer_embedding; }
};

// Computes x / rms(x) * gain over each `width` values; `gain` is a vector of the layer, -1: there
// is no such norm.
struct Norm {
  int gain = -1;
  int64_t width = 0;
  float eps = 0;

  bool present() const { return gain >= 0; }
};

// Computes gate = function(gate) * up (GateFunction). Both may be the same rows.
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

// Computes to = scale * the rows of the embedding, or of the table of layers.
struct Embed {
  Operand to;
  bool of_layers = false;
  float scale = 1;
};

// Computes to = matrix(input) for each output. The input is one of the layer's; it is made from the
// rows `from`: normed, or gated by `up`.
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
  bool add = false;  // `to` is added to
};

// Prepares heads of queries and keys, in this order: separates queries from their gates; applies
// norms, over a head or over all of them; rope; unit length; factors of queries by their position.
// Then keys and values go to the cache. Without `key` there are only queries.
struct PrepareHeads {
  HeadShape shape;
  Operand query, key, value;
  Operand to, gates;  // of queries and their gates; without gates `to` is `query`
  // In latent attention `key` becomes the normed latent and, behind it, the turned shared key.
  Operand latent, shared_key;
  int latent_input = -1;         // which of the layer's inputs the normed latent is
  int cache = 0;                 // the layer whose cache it is
  bool values_are_keys = false;  // `value` is a copy of `key` before its norm and rope
  bool norms_turned = false;     // query_norm and key_norm are behind rope
  Norm query_norm, key_norm, unit, value_norm;
  int rope = -1;     // of ModelConfig::ropes; -1: nothing is rotated
  int factors = -1;  // of ModelSteps::query_factors; -1: all are 1

  bool norms_all_heads() const { return query_norm.present() && query_norm.width != shape.dim; }
};

// Multiplies, for each of the heads, its part [rows, cols] of the matrix by the values of the head
// from the value `kept` on; the values before them are copied behind the results. The matrix has
// these parts below each other, or, where it is transposed, their transposes.
struct MultiplyHeads {
  int matrix = 0;
  bool transposed = false;
  int64_t heads = 0, rows = 0, cols = 0, kept = 0;
  Operand from, to;
};

// Computes to = attention of queries to the cache of a layer, whose values have value_dim numbers.
struct Attend {
  int cache = 0;
  HeadShape shape;
  Operand query, to;
  AttentionOptions options;
  int sinks = -1;  // vector [heads] of learned logits, or -1
  int64_t value_dim = 0;
};

// Convolves channels over the last positions of the sequence, the last rows of which go to its
// state. In a delta net this turns channels into what the delta rule reads, and makes decay and
// strength those of the rule. A short convolution has gates: to = after * (bias + convolution of
// before * channels).
struct Convolve {
  DeltaNetDesc net;
  Operand channels, decay, strength;
  int taps = -1, rate = -1, bias = -1, query_scale = -1, key_scale = -1;  // vectors
  Operand before, after, to;                                              // of a short convolution

  bool gated() const { return to.present(); }
};

// Computes to = the delta rule of channels, which changes the sequence's state.
struct DeltaRule {
  DeltaNetDesc net;
  Operand channels, decay, strength, to;
};

// Computes x = x * sigmoid(gate), or norm(x) * silu(gate), for heads of `dim` values.
struct GateHeads {
  Operand x, gate;
  int64_t heads = 0, dim = 0;
  Norm norm;
};

// Chooses the experts of every row by its logits (model/routing.h).
struct Route {
  ExpertsDesc experts;
  Operand logits;
  int bias = -1, factors = -1;  // vectors [experts], or -1
};

// Computes down(gated gate and up) for every row and each of its experts. The experts make their
// input, or read the one that the product of the router has made: nothing may change it before.
struct Experts {
  ExpertsDesc experts;
  bool makes_input = false;
  int input = 0, gated_input = 0;  // of gate and up, of down
  Operand from;
  Norm norm;
  GateRule gate;
};

// Computes branch = the sum of weight * expert, and of what branch holds of a shared expert, times
// sigmoid(share) if there is one. With `to` it is then scaled and added to that.
struct AddExperts {
  ExpertsDesc experts;
  bool shared = false;
  Operand share, branch, to;
  float scale = 1;
};

// Computes x = x - mean(x): norms of these rows are then as they would be with the mean
// (LayerNorm).
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
  int factor = -1;  // vector [1], or -1: 1
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
  int layer = -1;  // -1: embedding and head
  // Rows whose logits nobody wants need not take part: this holds for all of the last layer but
  // what goes to the cache or to a state.
  bool only_wanted = false;
  // The step runs even without any row that is wanted, because the state changes.
  bool changes_state = false;
};

// Returns all that a step reads and writes.
std::vector<Operand> operands_of(const Step& step);
// Returns the matrices of its layer that it multiplies with, as often as they stand there.
std::vector<int> matrices_of(const Step& step);

// Describes one form of an activation that some matrix reads.
struct PreparedInput {
  InputTransform transform;  // its rotator is that of a loaded model
  Rotation rotation = kNoRotation;
  int planes = 0;  // int8 planes; 0: float32
  int group = 0;   // values per int8 scale
  int buffer = 0;  // index into ModelSteps::buffers, distinct within an input
};

// Several matrices may read an activation. Every distinct form of it is made once per token.
struct Input {
  Norm norm;
  std::vector<PreparedInput> forms;
};

// A prepared input is written to a workspace of this shape, which all layers share.
struct BufferShape {
  int64_t cols = 0;
  int planes = 0;
  int group = 0;

  bool operator==(const BufferShape&) const = default;
};

// Says how a matrix is stored, and which forms of its input its passes read. Without a format this
// is not known yet.
struct MatrixForm {
  StoredForm stored;
  int input[2] = {0, 0};
  // MultiplyHeads has the matrix: it is decoded when it is loaded, and reads no form of an input.
  bool by_head = false, transposed = false;
  int64_t heads = 0;

  // Returns the format that it has once it is loaded.
  const Format* in_memory() const {
    return by_head && !stored.format->dense ? &get_format("f16") : stored.format;
  }
};

// Holds a layer's operands, in the places of its description, and its steps.
struct LayerSteps {
  std::vector<Input> inputs;         // as LayerDesc::activations
  std::vector<MatrixForm> matrices;  // as LayerDesc::matrices
  std::vector<VectorDesc> vectors;   // as layer_vectors()
  std::vector<Step> steps;
};

// Queries have factors by their position: those of a rope and those that grow (AttentionDesc).
struct QueryFactors {
  int rope = -1;  // whose config has them; -1: none
  float growth = 0;
  int64_t growth_step = 1;

  bool operator==(const QueryFactors&) const = default;
};

struct ModelSteps {
  // These steps turn tokens into what the layers read; matrices and vectors are those of layer 0.
  std::vector<Step> embed;
  std::vector<LayerSteps> layers;
  LayerSteps head;  // one input, one matrix, the final norm's gain
  StoredForm embedding, layer_embedding;
  std::vector<BufferShape> buffers;
  std::vector<QueryFactors> query_factors;  // distinct ones

  const LayerSteps& of(int layer) const {
    return layer < 0 ? head : layers[static_cast<size_t>(layer)];
  }
  // Returns the most values between neighbouring rows of each kind.
  std::array<int64_t, kRowKinds> strides() const;
  bool uses(Rows rows) const;
};

// These return the parts of the pair that the first layer joins: the embedding, and the stream that
// a batch has.
Operand joined_token(const ModelConfig& config);
Operand joined_stream(const ModelConfig& config);
// Returns whether another part of the model has the layer's experts (model/split.h).
bool experts_elsewhere(const LayerDesc& layer);
// Returns the list of a model, or of a part of one (model/split.h): a layer of a part may be
// without its mixer or without anything; where it has a shared expert and no others, it leaves that
// expert's output in `branch`; where it has the others and no matrices of the shared one, it finds
// the output there.
ModelSteps make_steps(const ModelConfig& config);
// Also finds the forms of all matrices that the source has, as the options want their inputs.
ModelSteps make_steps(const ModelConfig& config, const WeightSource& source,
                      const LoadOptions& options);

// Returns the input that pass `pass` of a coded matrix reads: cols and int8 planes, 0 of which are
// float rows. `folded`: of a source whose activations are rotated already.
BufferShape prepared_shape(const StoredForm& form, int pass, int64_t cols, bool folded,
                           const LoadOptions& options);
// Returns whether a matrix that is stored so is rotated.
bool is_rotated(const StoredForm& form);

}  // namespace walsh
