// A decoder layer as data: which activations there are, which matrices read them, and how the
// results are put together. Names, shapes, rotations, balancing, calibration, placement, memory and
// counts follow from it; the forward pass is the only code that gives the parts a meaning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace walsh {

// y = x / rms(x) * (gain_offset + weight), over `width` values.
struct NormDesc {
  std::string weight;  // tensor [width]; empty: there is no such norm
  int64_t width = 0;
  float eps = 0;
  float gain_offset = 0;  // 1 where checkpoints store the gain minus one

  bool present() const { return !weight.empty(); }
};

// The matrix whose outputs become an activation, each multiplied by a factor that it does not
// depend on (v before o: a weighted mean over positions; up before down: the gate), so that the
// channels can be scaled by scaling its rows. Channel c comes from row
//   c / (dim * repeat) * dim + c % dim.
struct Feeder {
  std::string matrix, bias;  // empty: there is none
  int64_t dim = 1, repeat = 1;

  int64_t row(int64_t channel) const { return channel / (dim * repeat) * dim + channel % dim; }
};

// In which basis the rows (outputs) or columns (inputs) of a matrix stand when a rotation is folded
// into the residual stream (quantize/source/fold.h).
enum class Basis : uint8_t {
  own,       // the checkpoint's
  residual,  // the one orthogonal matrix of the residual stream
  heads      // one orthogonal matrix per key-value head
};

// Values that matrices read. All that read one share its rotation and its channel balancing.
struct ActivationDesc {
  std::string name;  // e.g. "layers.0.attention"; decides the seed of its rotation
  int64_t width = 0;
  NormDesc norm = {};  // in front of it, if there is one
  Basis basis = Basis::own;
  Feeder feeder = {};
};

struct MatrixDesc {
  std::string weight;  // tensor [rows, cols]
  std::string bias;    // tensor [rows], or empty
  int64_t rows = 0, cols = 0;
  int input = 0;  // index of the activation that it reads
  Basis outputs = Basis::own;
};

// What a gate goes through.
enum class GateFunction : uint8_t {
  silu,      // x / (1 + exp(-x))
  gelu_tanh  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
};

// Softmax attention over the positions of a sequence. Head h of the queries reads key-value head
// h / (heads / kv_heads).
struct AttentionDesc {
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;  // a multiple of 8
  int rope = -1;         // index into ModelConfig::ropes; -1: queries and keys are not rotated
  int64_t window = 0;    // positions that a query sees, itself included; 0: all
  float scale = 0;       // of the logits
  float logit_cap = 0;   // c: logits become c tanh(logit / c); 0: they stay
  NormDesc q_norm = {}, k_norm = {};  // over head_dim values of every head, or over all of them
  int q = -1, k = -1, v = -1, o = -1;

  int64_t query_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  // Whether the norms are over whole rows; both are, or neither.
  bool norms_all_heads() const { return q_norm.present() && q_norm.width != head_dim; }
};

// down(function(gate(x)) * up(x)).
struct MlpDesc {
  int64_t width = 0;
  GateFunction function = GateFunction::silu;
  int gate = -1, up = -1, down = -1;
};

// x += scale * after_attention(o(attention(input))); x += scale * after_mlp(down(...)).
struct LayerDesc {
  std::vector<ActivationDesc> activations;        // in the order of the computation
  std::vector<MatrixDesc> matrices;               // in the order of the computation
  AttentionDesc attention;                        // its q, k, v and o are indices into `matrices`,
  MlpDesc mlp;                                    // and so are gate, up and down
  NormDesc after_attention = {}, after_mlp = {};  // of what a branch adds to the stream
  float branch_scale = 1;                         // of what a branch adds to the stream

  const MatrixDesc& matrix(int index) const { return matrices[static_cast<size_t>(index)]; }
  const ActivationDesc& input_of(const MatrixDesc& m) const {
    return activations[static_cast<size_t>(m.input)];
  }
};

}  // namespace walsh
