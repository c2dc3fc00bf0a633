// Which edges of a model are rotated: the activations ("sites") that linear weights read. A model
// family fills the plan in; the quantizer needs nothing else to know about the architecture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace walsh {

// One activation and the weights [rows, width] that read it. They share rotation seed and channel
// balancing.
struct Site {
  std::string name;                   // e.g. "model.layers.0.self_attn.input"
  int64_t width = 0;                  // K of every matrix
  std::string norm;                   // weight of the RMSNorm that feeds it, empty if none
  std::vector<std::string> matrices;  // tensor names, in file order
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
};

}  // namespace walsh
