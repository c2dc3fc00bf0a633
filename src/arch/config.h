// The description of one decoder forward pass, read from a Hugging Face config.json. Every family
// is brought to this one form; the forward pass knows no families.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "arch/layer.h"
#include "arch/rope.h"

namespace walsh {

// A tensor of this description that a checkpoint stores as rows of a larger one: the rows
// [first_row, first_row + rows) of `source`.
struct TensorPart {
  std::string name, source;
  int64_t first_row = 0, rows = 0;
};

struct ModelConfig {
  std::string family;  // config.json's model_type
  int64_t hidden = 0;  // width of the residual stream
  int64_t vocab = 0;
  int64_t max_positions = 0;
  std::vector<RopeConfig> ropes;
  std::string embedding;      // tensor [vocab, hidden]
  float embedding_scale = 1;  // of its rows when they enter the stream
  std::vector<LayerDesc> layers;
  ActivationDesc head_input;  // with the final norm
  MatrixDesc head;            // [vocab, hidden]; its weight is the embedding if they are tied
  bool tied_head = false;
  std::string head_name;  // of the tensor that a head of its own has, also where it is tied
  float logit_scale = 1;  // logits = cap(scale * head)
  float logit_cap = 0;    // c: logits become c tanh(logit / c); 0: they stay
  std::vector<TensorPart> parts;
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
// All norms of a layer that are present, in the order of the computation.
std::vector<const NormDesc*> layer_norms(const LayerDesc& layer);
// All tensors that the config asks for, embedding first; a tied model has no head.
std::vector<TensorShape> model_tensors(const ModelConfig& config);

// The largest of a width over all layers.
struct LayerWidths {
  int64_t query = 0, kv = 0, mlp = 0, head_dim = 0, heads = 0, kv_heads = 0;
  // Of delta nets; query_rows with the gates of queries, mixed: what a mixer gives.
  int64_t query_rows = 0, mixed = 0, channels = 0, value_heads = 0;
};
LayerWidths widest(const ModelConfig& config);

}  // namespace walsh
