// The order of the forward pass, in one place: a list of operations on named rows, made from the
// description of the layers. A device executes it operation by operation, records it, or compiles
// it; calibration runs parts of it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "arch/config.h"

namespace walsh {

// What a device keeps for every row of a batch (a token), as float32.
enum class Rows : uint8_t {
  stream,  // [hidden], the residual stream
  branch,  // [hidden], what a block will add to it
  query,   // [heads * head_dim]; in front of place_heads with gates (AttentionDesc::gated)
  key,     // [kv_heads * head_dim]
  value,   // [kv_heads * head_dim]
  // Of latent attention, where place_heads finds in `key` what is not rotated of every head, and in
  // `value` value_dim values of each.
  latent,        // [rank]
  query_latent,  // [query_rank]
  shared_key,    // [rope_dim]
  channels,      // [channels of the delta net]: queries, keys, values
  decay,         // [value heads]: a, then the logarithm of the decay
  strength,      // [value heads]: b, then its sigmoid
  mixed,         // [heads * head_dim], what attention or the delta net gives
  mixer_gate,    // of mixed
  gate,          // [mlp width]
  up,            // [mlp width]
  router,        // [experts], the logits of the experts
  share,         // [1], whose sigmoid multiplies what the shared expert adds
  logits         // [vocab]
};
inline constexpr size_t kRowKinds = static_cast<size_t>(Rows::logits) + 1;
// Values of a row of each kind, at most.
std::array<int64_t, kRowKinds> row_widths(const ModelConfig& config);

struct ForwardOp {
  enum class Kind : uint8_t {
    embed,        // stream = rows of the embedding
    multiply,     // to = matrix(input) for each product; the input is made from the rows `from`:
                  // the norm in front of it if there is one; function(gate) * up if from == gate
    place_heads,  // gates of queries to mixer_gate; norms and rope of query and key; key and value
                  // go to the cache
    attend,       // mixed = attention of query to the cache; of latent attention value_dim values
                  // of every head
    convolve,     // channels = what the delta net reads, decay and strength too; the last rows go
                  // to the sequence's state
    delta_rule,   // mixed = the delta rule of channels, which changes the sequence's state
    gate_mixed,   // mixed = mixed * sigmoid(mixer_gate), or norm(mixed) * silu(mixer_gate)
    add_branch,   // stream += scale * norm(branch); without the norm if there is none
    route,        // chooses the experts of every row by its `router`
    experts,      // for every row and expert of it: down(function(gate) * up) of the input that
                  // the last `multiply` made, which nothing else may change before
    add_experts   // branch = sum of weight * expert, and of sigmoid(share) * branch where there is
                  // a shared expert, without the sigmoid if nothing gates it
  };
  struct Matmul {
    int matrix = 0;  // of the layer, or 0: the head
    Rows to = Rows::stream;
  };

  Kind kind = Kind::embed;
  int layer = -1;  // -1: embedding and head
  // multiply:
  int input = 0;  // of the layer, or 0: that of the head
  Rows from = Rows::stream;
  bool add = false;  // to is added to
  std::vector<Matmul> matmuls = {};
  // add_branch:
  bool after_attention = false;  // of the two norms behind a block, the first
};

// Whether another part of the model has the layer's experts (model/split.h).
bool experts_elsewhere(const LayerDesc& layer);
// All operations of a layer, in their order. A layer of a part of a model (model/split.h) may be
// without its mixer or without anything; where it has a shared expert and no others, or others and
// no matrices of the shared one, that leaves what it gives in `branch`, or finds it there.
std::vector<ForwardOp> layer_operations(const ModelConfig& config, int layer);
ForwardOp embed_operation();
ForwardOp head_operation();

// Whole passes: embed, the layers, the head.
class ForwardPass {
 public:
  explicit ForwardPass(const ModelConfig& config);

  const ForwardOp& embed() const { return embed_; }
  std::span<const ForwardOp> layer(int64_t index) const;
  std::span<const ForwardOp> layers() const { return operations_; }
  const ForwardOp& head() const { return head_; }
  // Whether rows whose logits nobody wants need not take part in an operation any more: all of the
  // last layer but what goes to the cache or the state. Of delta_rule they are not written.
  bool only_wanted_rows(const ForwardOp& op) const;

 private:
  ForwardOp embed_, head_;
  std::vector<ForwardOp> operations_;
  std::vector<size_t> first_;  // of each layer in operations_, then their number
};

}  // namespace walsh
