// Which edges of a model are rotated: the activations ("sites") that linear weights read. A model
// family fills the plan in; the quantizer needs nothing else to know about the architecture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace walsh {

// The matrix whose outputs become an activation, each multiplied by a factor that it does not
// depend on (v before o: a weighted mean over positions; up before down: the gate), so that the
// channels can be scaled by scaling its rows. Channel c comes from row
//   c / (dim * repeat) * dim + c % dim.
struct Feeder {
  std::string matrix, bias;  // empty: there is none
  int64_t dim = 1, repeat = 1;

  int64_t row(int64_t channel) const { return channel / (dim * repeat) * dim + channel % dim; }
};

// One activation and the weights [rows, width] that read it. They share rotation seed and channel
// balancing.
struct Site {
  std::string name;                   // e.g. "model.layers.0.self_attn.input"
  int64_t width = 0;                  // K of every matrix
  std::string norm;                   // weight of the RMSNorm that feeds it, empty if none
  std::vector<std::string> matrices;  // tensor names, in file order
  Feeder feeder = {};
};

// In which basis the rows (outputs) or columns (inputs) of a folded tensor stand.
enum class Basis : uint8_t {
  own,       // the checkpoint's
  residual,  // the one orthogonal matrix of the residual stream
  heads      // one orthogonal matrix per key-value head
};

// A tensor of the model whose residual stream is rotated: W' = R_rows W diag(gain) R_cols^T.
struct FoldedTensor {
  std::string name;    // in the folded model
  std::string source;  // in the checkpoint
  std::string gain;    // weight of the RMSNorm that multiplies the columns, empty if none
  Basis rows = Basis::own, cols = Basis::own;
  int site = -1;  // of the activation whose heads Basis::heads means
};

// How a rotation is folded into the residual stream (quantize/fold.h): everything that reads or
// writes it, and the per-head edge between v and o.
struct ResidualPlan {
  std::string refusal = "this architecture does not describe its residual stream";  // empty: can be
  int64_t hidden = 0, head_dim = 0, kv_heads = 0;
  std::string head;                // name of the output head, which is never tied when folded
  std::vector<std::string> norms;  // whose gains are folded: ones in the folded model
  std::vector<FoldedTensor> tensors;
};

struct ModelPlan {
  std::string embedding;    // token embedding [vocab, hidden]
  std::string head;         // output head [vocab, hidden]; empty when tied to the embedding
  std::string final_norm;   // norm before the head
  std::vector<Site> sites;  // in layer order; the index is the site number of its seed
  std::vector<std::string> vectors;  // all remaining tensors (norms, biases): kept as they are
  // Tensors that a checkpoint may hold and the architecture does not read (a copy of a tied head,
  // rotary buffers): exact names. Any other tensor is an error.
  std::vector<std::string> ignored;
  ResidualPlan residual;
};

}  // namespace walsh
