// Describes a decoder's forward pass, as read from a Hugging Face config.json. All families are
// brought to this one form; the forward pass does not know families.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/layer.h"
#include "arch/rope.h"
#include "arch/stored_quantization.h"
#include "io/checkpoint.h"

namespace walsh {

// Describes a tensor that the checkpoint stores in another way: as the rows (elements of a vector)
// [first_row, first_row + rows) of the tensor `source`. If `turned` is not 0, the first `turned` of
// every `head_dim` rows are stored as pairs (0, 1), (2, 3), ..., while this description has the
// first values of all pairs before the second ones. With a `shape`, which is that of the source, it
// is the tensor [rows, cols] whose element (r, c) is element first + r * row_step + c * col_step of
// the source. If a checkpoint has a tensor of this name itself, it need not have the source.
struct TensorPart {
  // These are `count` groups of `rows` rows. The first group begins at row `first`, and groups are
  // `step` rows apart.
  struct RowGroups {
    int64_t first = 0, rows = 0, step = 0, count = 0;
  };

  std::string name, source;
  int64_t first_row = 0, rows = 0;
  int64_t turned = 0, head_dim = 0;
  std::vector<int64_t> shape = {};
  int64_t cols = 0, first = 0, row_step = 0, col_step = 0;
  // If there are groups, the tensor has their rows, one group after the other, and `first` and the
  // steps are not used.
  std::vector<RowGroups> groups = {};
};

// Tokens look up rows of this table, besides those of the embedding.
struct TokenTableDesc {
  std::string weight;  // tensor [vocab, cols]; empty: there is none
  int64_t cols = 0;
  float scale = 1;  // multiplies its rows

  bool present() const { return !weight.empty(); }
};

// This layer predicts the token behind the next one from the model's output for a token and from
// the next token (multi-token prediction; Gloeckle et al. 2024, DeepSeek-AI 2024). Embedding and
// head are those of the model, and it can go on from its own output.
struct AheadDesc {
  std::vector<LayerDesc> layer;  // one that has a join; empty: there is none
  NormDesc norm = {};            // in front of the head
  bool joins_normed = false;     // it joins the model's output behind the final norm
  bool goes_on_normed = false;   // it goes on from its own output behind `norm`

  bool present() const { return !layer.empty(); }
};

struct ModelConfig {
  std::string family;  // model_type in config.json
  int64_t hidden = 0;  // width of the residual stream
  int64_t vocab = 0;
  int64_t max_positions = 0;
  std::vector<RopeConfig> ropes;   // referred to by the layers
  std::string embedding;           // tensor [vocab, hidden]
  float embedding_scale = 1;       // multiplies its rows when they enter the residual stream
  TokenTableDesc layer_embedding;  // of all layers, one behind the other (LayerEmbeddingDesc)
  std::vector<LayerDesc> layers;
  AheadDesc ahead;
  ActivationDesc head_input;  // with the final norm
  MatrixDesc head;            // [vocab, hidden]; if tied, its weight is the embedding
  bool tied_head = false;
  std::string head_name;  // the tensor that an untied head has; set for tied heads, too
  float logit_scale = 1;  // logits = cap(scale * head)
  float logit_cap = 0;    // c: logits become c tanh(logit / c); 0: no cap
  std::vector<TensorPart> parts;
  // In a checkpoint of several parts, of which this is the text part, tensors have these names;
  // `whole` is the name of the multi-part model.
  std::span<const NameRule> stored_names;
  std::string whole;
  // Tensors with these prefixes are not used: further layers of multi-token prediction, and copies.
  std::vector<std::string> left_out;
  StoredQuantization stored;  // how the checkpoint stores matrices
  // A checkpoint may contain tensors with exactly these names, which the model does not read
  // (rotary buffers).
  std::vector<std::string> ignored;
  std::vector<int32_t> bos, eos;  // as stated in the file; they may lie outside the vocabulary
};

// Reads config.json. Throws bad_input, naming `where` and the key, for a key that is missing, out
// of range, unknown (it might change the function) or asks for something that is not supported.
ModelConfig parse_config(std::string_view json, std::string_view where);

struct TensorShape {
  std::string name;
  int64_t rows = 1;  // 1 for vectors
  int64_t cols = 0;
};

// Returns the size of the heads that a rope rotates; of the widest if no layer uses it.
int64_t rope_head_dim(const ModelConfig& config, size_t rope);
// Returns the layer that predicts further tokens as a model of its own, with the embedding and the
// head of `config`.
ModelConfig ahead_config(const ModelConfig& config);
// Returns whether a sequence has a state besides its keys and values.
bool is_recurrent(const ModelConfig& config);
// Returns all tensors that the config asks for, embedding first, without those of `ahead`. A tied
// model has no head.
std::vector<TensorShape> model_tensors(const ModelConfig& config);

// Each width is the largest over all layers.
struct LayerWidths {
  int64_t query = 0, kv = 0, mlp = 0, head_dim = 0, heads = 0, kv_heads = 0;
  // These are of delta nets. query_rows includes the gates of the queries; mixed is the width of
  // what a mixer gives.
  int64_t query_rows = 0, mixed = 0, channels = 0, value_heads = 0;
  int64_t latent = 0, query_latent = 0, shared_key = 0;  // about latent attention
  // These are the number of experts, how many are chosen per token, and how wide one is.
  int64_t experts = 0, chosen = 0, expert = 0;
};
LayerWidths widest(const ModelConfig& config);

}  // namespace walsh
