// Says what the quantizer knows of a model: the activations ("sites") that linear weights read,
// each of which may be rotated. It is derived from the description of the model; the quantizer
// needs nothing else of the architecture.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "arch/config.h"

namespace walsh {

// A site is one activation and the weights [rows, width] that read it. They share the seed of the
// rotation and the channel balancing.
struct Site {
  std::string name;   // e.g. "layers.0.attention"; determines the seed of the rotation
  int64_t width = 0;  // columns of every matrix
  std::string norm;   // weight of the RMSNorm before it, empty if there is none
  std::vector<std::string> matrices;  // tensor names, in file order
  Feeder feeder = {};
  std::vector<std::string> plain = {};  // matrices that read it as well but are never coded
};

// Describes a matrix that belongs to an expert.
struct ExpertMatrix {
  int expert = 0;
  std::string kind;  // the same for all experts of a layer: the name with "*" as the number
};

// This tensor belongs to the model whose residual stream is rotated: W' = R_rows W diag(gain)
// R_cols^T.
struct FoldedTensor {
  std::string name;    // in the folded model
  std::string source;  // in the checkpoint
  std::string gain;    // weight of the RMSNorm that multiplies the columns, empty if none
  Basis rows = Basis::own, cols = Basis::own;
  std::string heads = {};  // the activation that Basis::heads refers to
};

// Says how a rotation is folded into the residual stream (quantize/source/fold.h): it lists all
// tensors that read or write the stream, and the per-head rotation between v and o.
struct ResidualPlan {
  // Says why nothing can be folded; empty if it can.
  std::string refusal = "this architecture does not describe its residual stream";
  int64_t hidden = 0, head_dim = 0, kv_heads = 0;
  std::string head;  // name of the output head, which is never tied when folded
  // The gains of these norms are folded; they are 1 in the folded model.
  std::vector<std::string> norms;
  std::vector<FoldedTensor> tensors;
};

struct ModelPlan {
  std::string embedding;        // token embedding [vocab, hidden]
  std::string layer_embedding;  // [vocab, values of all layers], or empty
  std::string head;             // output head [vocab, hidden]; empty if tied to the embedding
  std::string final_norm;       // norm before the head
  float gain_offset = 0;        // added to the stored gain of every site's norm (NormDesc)
  std::vector<Site> sites;      // in layer order
  std::vector<Site> ahead;      // those of ModelConfig::ahead, which nothing is measured at
  std::vector<std::string> ahead_vectors;
  std::string ahead_join;  // a matrix that a checkpoint lacks if it lacks that layer; or empty
  // The config gives each matrix, embedding and head included, this shape [rows, columns].
  std::map<std::string, std::array<int64_t, 2>> shapes;
  // All remaining tensors (norms, biases, convolutions) are kept as they are.
  std::vector<std::string> vectors;
  // A checkpoint may contain tensors with exactly these names, which the architecture does not read
  // (a copy of a tied head, rotary buffers). Any other tensor is an error.
  std::vector<std::string> ignored;
  ResidualPlan residual;
  std::vector<TensorPart> parts;  // of tensors that the checkpoint stores in another form
  std::map<std::string, ExpertMatrix> experts;  // by the name of the matrix
  std::span<const NameRule> stored_names;       // as in ModelConfig
  std::string whole;
  std::vector<std::string> left_out;
  StoredQuantization stored;
};

ModelPlan make_plan(const ModelConfig& config);
// Returns the same from the text of config.json. Throws what parse_config throws.
ModelPlan read_plan(std::string_view config_json, std::string_view where);

}  // namespace walsh
