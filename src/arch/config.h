// Describes a decoder's forward pass as read from a Hugging Face config.json. All families are
// brought to this form; the forward pass knows no families.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/layer.h"
#include "arch/rope.h"
#include "arch/stored_method.h"
#include "io/checkpoint.h"

namespace walsh {

// Describes a tensor that the checkpoint stores as a part of the tensor `source`.
//
// Usually it is the rows (of a vector: the elements) [first_row, first_row + rows) of the source.
// If `turned` is not 0, the first `turned` of every `head_dim` rows are stored as pairs (0, 1), (2,
// 3), ..., while this description has the first values of all pairs before the second ones. With a
// `shape`, which is that of the source, element (r, c) of the tensor [rows, cols] is element first
// + r * row_step + c * col_step of the source. If the checkpoint has a tensor of this name itself,
// it need not have the source. Of several parts with one name and different shapes, the last one
// whose shape the source has counts, or else the first.
struct TensorPart {
  // Names `count` groups of `rows` rows. The first group begins at row `first`, and groups begin
  // `step` rows apart.
  struct RowGroups {
    int64_t first = 0, rows = 0, step = 0, count = 0;
  };

  std::string name, source;
  int64_t first_row = 0, rows = 0;
  int64_t turned = 0, head_dim = 0;
  std::vector<int64_t> shape = {};
  int64_t cols = 0, first = 0, row_step = 0, col_step = 0;
  // If there are groups, the tensor consists of their rows, one group after the other. `first` and
  // the steps are not used then.
  std::vector<RowGroups> groups = {};
};

// Describes a table whose rows tokens look up besides those of the embedding.
struct TokenTableDesc {
  std::string weight;  // It names a tensor [vocab, cols]; if empty, there is no table.
  int64_t cols = 0;
  float scale = 1;  // It multiplies the rows.

  bool present() const { return !weight.empty(); }
};

// Describes a layer that predicts the token after the next one, from the model's output for a
// token and from the next token (multi-token prediction; Gloeckle et al. 2024, DeepSeek-AI 2024).
// Embedding and head are those of the model, and it can go on from its own output.
struct AheadDesc {
  std::vector<LayerDesc> layer;  // It is one layer with a join; if empty, the model has none.
  NormDesc norm = {};            // It stands in front of the head.
  bool joins_normed = false;     // If true, it reads the model's output after the final norm.
  bool goes_on_normed = false;   // If true, it goes on from its own output after `norm`.

  bool present() const { return !layer.empty(); }
};

struct ModelConfig {
  std::string family;  // It is the model_type of config.json.
  int64_t hidden = 0;  // The residual stream has this width.
  int64_t vocab = 0;
  int64_t max_positions = 0;
  std::vector<RopeConfig> ropes;  // The layers refer to these.
  std::string embedding;          // It names a tensor [vocab, hidden].
  float embedding_scale = 1;      // It multiplies rows that enter the residual stream.
  // Holds the embeddings of all layers, one after the other in a row (LayerEmbeddingDesc).
  TokenTableDesc layer_embedding;
  std::vector<LayerDesc> layers;
  AheadDesc ahead;
  ActivationDesc head_input;  // It includes the final norm.
  MatrixDesc head;            // It is [vocab, hidden]; the weight of a tied head is the embedding.
  bool tied_head = false;
  // Names the tensor of an untied head; it is set for a tied one, too.
  std::string head_name;
  float logit_scale = 1;  // The head gives logits = cap(logit_scale * product).
  float logit_cap = 0;    // With a cap c, logits become c tanh(logit / c); 0: no cap.
  std::vector<TensorPart> parts;
  // If this is the text part of a checkpoint with several parts, these rules give the names of its
  // tensors there, and `whole` is the name of the multi-part model.
  std::span<const NameRule> stored_names;
  std::string whole;
  // Tensors with these prefixes are not read: further layers of multi-token prediction, and copies.
  std::vector<std::string> left_out;
  StoredMethod stored;  // It says how the checkpoint stores matrices.
  // A checkpoint may contain tensors with exactly these names, which the model does not read (for
  // example rotary buffers).
  std::vector<std::string> ignored;
  std::vector<int32_t> bos, eos;  // The file states these ids; they may lie outside the vocabulary.
};

// Reads config.json. Throws bad_input, naming `where` and the key, for a key that is missing, out
// of range, unknown (it might change the function) or asks for something that is not supported.
ModelConfig parse_config(std::string_view json, std::string_view where);

struct TensorShape {
  std::string name;
  int64_t rows = 1;  // A vector has one row.
  int64_t cols = 0;
};

// Returns the head size of the layers that use a rope; if none does, the widest head size.
int64_t rope_head_dim(const ModelConfig& config, size_t rope);
// Returns the layer that predicts ahead as a config of its own, with the embedding and the head of
// `config`.
ModelConfig ahead_config(const ModelConfig& config);
// Returns whether a sequence has a state besides its keys and values.
bool is_recurrent(const ModelConfig& config);
// Returns all tensors that the config asks for, embedding first, without those of `ahead`. A tied
// head is not among them.
std::vector<TensorShape> model_tensors(const ModelConfig& config);

// Holds the largest widths over all layers.
struct LayerWidths {
  int64_t query = 0, kv = 0, mlp = 0, head_dim = 0, heads = 0, kv_heads = 0;
  // These are widths of delta nets. query_rows includes the gates of the queries; mixed is what a
  // mixer gives.
  int64_t query_rows = 0, mixed = 0, channels = 0, value_heads = 0;
  int64_t latent = 0, query_latent = 0, shared_key = 0;  // These are widths of latent attention.
  // These are the number of experts, how many are chosen per token, and how wide one is.
  int64_t experts = 0, chosen = 0, expert = 0;
};
LayerWidths widest(const ModelConfig& config);

}  // namespace walsh
