// The description of one decoder forward pass, read from a Hugging Face config.json. Every family
// is brought to this one form; the forward pass knows no families.
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

// A tensor of this description that a checkpoint stores in another way: the rows (elements of a
// vector) [first_row, first_row + rows) of `source`. Of every `head_dim` of them, the first
// `turned` ones are stored as pairs (0, 1), (2, 3), ..., while this description has the first of
// all pairs before the second ones; 0: they stand as they are.
// With a `shape`, which is that of the source: the tensor [rows, cols] whose element (r, c) is
// element first + r * row_step + c * col_step of it. A checkpoint that has a tensor of this name
// itself need not have such a source.
struct TensorPart {
  // `count` times `rows` rows, the first of them at row `first`, one group `step` rows behind the
  // other.
  struct RowGroups {
    int64_t first = 0, rows = 0, step = 0, count = 0;
  };

  std::string name, source;
  int64_t first_row = 0, rows = 0;
  int64_t turned = 0, head_dim = 0;
  std::vector<int64_t> shape = {};
  int64_t cols = 0, first = 0, row_step = 0, col_step = 0;
  // With a shape, instead of `first` and the steps: these rows, one group behind the other.
  std::vector<RowGroups> groups = {};
};

struct ModelConfig {
  std::string family;  // config.json's model_type
  int64_t hidden = 0;  // width of the residual stream
  int64_t vocab = 0;
  int64_t max_positions = 0;
  std::vector<RopeConfig> ropes;  // layers refer to them
  std::string embedding;          // tensor [vocab, hidden]
  float embedding_scale = 1;      // of its rows when they enter the stream
  std::vector<LayerDesc> layers;
  ActivationDesc head_input;  // with the final norm
  MatrixDesc head;            // [vocab, hidden]; its weight is the embedding if they are tied
  bool tied_head = false;
  std::string head_name;  // of the tensor that a head of its own has, also where it is tied
  float logit_scale = 1;  // logits = cap(scale * head)
  float logit_cap = 0;    // c: logits become c tanh(logit / c); 0: they stay
  std::vector<TensorPart> parts;
  // Names in a checkpoint of several parts, of which this is the text part; `whole` names what it
  // is a part of.
  std::span<const NameRule> stored_names;
  std::string whole;
  // What the names of tensors begin with that no next token needs: layers that guess further ones.
  std::vector<std::string> left_out;
  StoredQuantization stored;  // how the checkpoint has matrices
  // Tensors that a checkpoint may hold and the model does not read (rotary buffers): exact names.
  std::vector<std::string> ignored;
  std::vector<int32_t> bos, eos;  // as they stand there: may lie outside the vocabulary
};

// Reads config.json. Throws bad_input naming `where` and the key when a key is missing, out of
// range, unknown (it might change the function) or asks for something not supported.
ModelConfig parse_config(std::string_view json, std::string_view where);

struct TensorShape {
  std::string name;
  int64_t rows = 1;  // 1 for vectors
  int64_t cols = 0;
};

// Whether a sequence has a state besides keys and values.
bool is_recurrent(const ModelConfig& config);
// All tensors that the config asks for, embedding first; a tied model has no head.
std::vector<TensorShape> model_tensors(const ModelConfig& config);

// The largest of a width over all layers.
struct LayerWidths {
  int64_t query = 0, kv = 0, mlp = 0, head_dim = 0, heads = 0, kv_heads = 0;
  // Of delta nets; query_rows with the gates of queries, mixed: what a mixer gives.
  int64_t query_rows = 0, mixed = 0, channels = 0, value_heads = 0;
  int64_t latent = 0, query_latent = 0, shared_key = 0;  // of latent attention
  int64_t experts = 0, chosen = 0, expert = 0;  // their number, those of a token, width of one
};
LayerWidths widest(const ModelConfig& config);

}  // namespace walsh
