// Says what the quantizer knows of a model. These are mainly the sites, i.e. the activations that
// linear weights read, each of which may be rotated. The plan is derived from the description of
// the model; the quantizer needs nothing else of the architecture.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "arch/config.h"

namespace walsh {

// Names one activation and the weights [rows, width] that read it. They share the seed of the
// rotation and the channel balancing.
struct Site {
  // Identifies the site, e.g. "layers.0.attention", and determines the seed of the rotation.
  std::string name;
  int64_t width = 0;  // Every matrix has this many columns.
  // Names the weight of the RMSNorm before it; empty if there is none.
  std::string norm;
  std::vector<std::string> matrices;  // They name tensors, in file order.
  Feeder feeder = {};
  std::vector<std::string> plain = {};  // These matrices read it as well, but are never coded.
};

// Describes a matrix that belongs to an expert.
struct ExpertMatrix {
  int expert = 0;
  // It is the name with "*" as the number, which all experts of a layer share.
  std::string kind;
};

// Describes a tensor of the model with a rotated residual stream: W' = R_rows W diag(gain)
// R_cols^T.
struct FoldedTensor {
  std::string name;    // The folded model has this name.
  std::string source;  // The checkpoint has this name.
  // Names the weight of the RMSNorm that multiplies the columns; empty if there is none.
  std::string gain;
  Basis rows = Basis::own, cols = Basis::own;
  std::string heads = {};  // Basis::heads refers to this activation.
};

// Says how a rotation is folded into the residual stream (quantize/source/fold.h): lists all
// tensors that read or write the stream, and the per-head rotation between v and o.
struct ResidualPlan {
  // Says why nothing can be folded; empty if a rotation can be.
  std::string refusal = "this architecture does not describe its residual stream";
  int64_t hidden = 0, head_dim = 0, kv_heads = 0;
  std::string head;  // It names the output head, which is never tied when folded.
  // The gains of these norms are folded into matrices; they are 1 in the folded model.
  std::vector<std::string> norms;
  std::vector<FoldedTensor> tensors;
};

struct ModelPlan {
  std::string embedding;        // It names the embedding of tokens [vocab, hidden].
  std::string layer_embedding;  // It names a tensor [vocab, values of all layers], or nothing.
  // Names the output head [vocab, hidden]; empty if it is tied to the embedding.
  std::string head;
  std::string final_norm;  // It names the norm in front of the head.
  // It is added to the stored gain of every site's norm (NormDesc).
  float gain_offset = 0;
  std::vector<Site> sites;  // Sites are in the order of layers.
  // These belong to ModelConfig::ahead; nothing is measured at them.
  std::vector<Site> ahead;
  std::vector<std::string> ahead_vectors;
  // Names a matrix that a checkpoint without that layer lacks; or nothing.
  std::string ahead_join;
  // Maps the name of each matrix, embedding and head included, to the shape [rows, columns] that
  // the config gives it.
  std::map<std::string, std::array<int64_t, 2>> shapes;
  // All remaining tensors (norms, biases, convolutions) are copied unchanged.
  std::vector<std::string> vectors;
  // A checkpoint may contain tensors with exactly these names, which the model does not read (a
  // copy of a tied head, rotary buffers). Any other unknown tensor is an error.
  std::vector<std::string> ignored;
  ResidualPlan residual;
  std::vector<TensorPart> parts;  // The checkpoint stores these tensors in another form.
  std::map<std::string, ExpertMatrix> experts;  // The key is the name of the matrix.
  std::span<const NameRule> stored_names;       // ModelConfig explains these.
  std::string whole;
  std::vector<std::string> left_out;
  StoredMethod stored;
};

ModelPlan make_plan(const ModelConfig& config);
// Makes the same from the text of config.json. Throws what parse_config throws.
ModelPlan read_plan(std::string_view config_json, std::string_view where);

}  // namespace walsh
