// Which edges of a model are rotated: the activations ("sites") that linear weights read. It
// follows from the description of the model; the quantizer needs nothing else of the architecture.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "arch/config.h"

namespace walsh {

// One activation and the weights [rows, width] that read it. They share rotation seed and channel
// balancing.
struct Site {
  std::string name;                   // e.g. "layers.0.attention"; decides the rotation's seed
  int64_t width = 0;                  // K of every matrix
  std::string norm;                   // weight of the RMSNorm that feeds it, empty if none
  std::vector<std::string> matrices;  // tensor names, in file order
  Feeder feeder = {};
  std::vector<std::string> plain = {};  // matrices that read it, too, and are never coded
};

// Of a matrix that is a part of an expert.
struct ExpertMatrix {
  int expert = 0;
  std::string kind;  // the same for all experts of a layer: the name with "*" for the number
};

// A tensor of the model whose residual stream is rotated: W' = R_rows W diag(gain) R_cols^T.
struct FoldedTensor {
  std::string name;    // in the folded model
  std::string source;  // in the checkpoint
  std::string gain;    // weight of the RMSNorm that multiplies the columns, empty if none
  Basis rows = Basis::own, cols = Basis::own;
  std::string heads = {};  // name of the activation whose heads Basis::heads means
};

// How a rotation is folded into the residual stream (quantize/source/fold.h): everything that reads
// or writes it, and the per-head edge between v and o.
struct ResidualPlan {
  std::string refusal = "this architecture does not describe its residual stream";  // empty: can be
  int64_t hidden = 0, head_dim = 0, kv_heads = 0;
  std::string head;                // name of the output head, which is never tied when folded
  std::vector<std::string> norms;  // whose gains are folded: 1 in the folded model
  std::vector<FoldedTensor> tensors;
};

struct ModelPlan {
  std::string embedding;    // token embedding [vocab, hidden]
  std::string head;         // output head [vocab, hidden]; empty when tied to the embedding
  std::string final_norm;   // norm before the head
  float gain_offset = 0;    // what is added to the stored gain of every site's norm (NormDesc)
  std::vector<Site> sites;  // in layer order
  // [rows, columns] that the config gives every matrix, embedding and head included.
  std::map<std::string, std::array<int64_t, 2>> shapes;
  // All remaining tensors (norms, biases, convolutions): kept as they are.
  std::vector<std::string> vectors;
  // Tensors that a checkpoint may hold and the architecture does not read (a copy of a tied head,
  // rotary buffers): exact names. Any other tensor is an error.
  std::vector<std::string> ignored;
  ResidualPlan residual;
  std::vector<TensorPart> parts;  // of what the checkpoint stores in one tensor, or in another way
  std::map<std::string, ExpertMatrix> experts;  // by the name of the matrix
  std::span<const NameRule> stored_names;       // as in ModelConfig
  std::string whole;
  std::vector<std::string> left_out;
  StoredQuantization stored;
};

ModelPlan make_plan(const ModelConfig& config);
// The same from config.json's text. Throws as parse_config.
ModelPlan read_plan(std::string_view config_json, std::string_view where);

}  // namespace walsh
