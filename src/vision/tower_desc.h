// Describes a vision tower with its projector; a family reads it from config.json. The tower
// (tower.h) is made from this alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/json.h"
#include "vision/preprocess.h"

namespace walsh::vision {

enum class Activation : uint8_t { silu, gelu, gelu_tanh };
// Throws bad_input for a function that is not supported.
Activation parse_activation(const std::string& name, const std::string& where);

// Describes an operation on the rows of an image, which stand in a grid.
struct RowStep {
  enum class Kind : uint8_t {
    rms_norm,
    layer_norm,
    product,  // with a matrix, and its bias if it has one
    activate,
    merge,   // rows of side x side become one that has the values of all
    average  // or their means
  };
  Kind kind = Kind::rms_norm;
  std::string name = {};  // of the tensors, without ".weight" and ".bias"
  float eps = 0;          // of norms
  float gain_offset = 0;  // of rms_norm: what is added to the stored gain
  int64_t width = 0;      // of the rows that a product gives
  bool bias = false;
  bool turned = false;  // a product's matrix is stored as [columns][rows], without ".weight"
  Activation activation = Activation::gelu;
  int64_t side = 1;
  bool by_channel = false;  // of merge: the values of a channel are neighbours, not those of a row
};

// Names the tensors of a layer, behind the number of the layer, without ".weight" and ".bias".
struct LayerNames {
  std::string layers;                                           // in front of the number
  std::string norm1, q, k, v, qkv, out, norm2, gate, up, down;  // empty: there is none
};

struct TowerDesc {
  // A tensor's name in the checkpoint begins with one of these, of the tower and of what is behind.
  std::vector<std::string> prefixes;
  LayerNames names;
  std::string patch_name, position_name;
  int64_t patch = 0;
  int64_t frames = 0;  // copies of an image that are read together; 0: the matrix has no such axis
  int64_t width = 0, heads = 0, hidden = 0, layers = 0;
  float eps = 0;
  bool rms = false;   // norms are RMSNorms, otherwise LayerNorms
  bool bias = false;  // of the products in layers, and of that with patches
  Activation activation = Activation::gelu;
  // Rows and columns turn the first and the second half of a head's frequencies. Pair i of a half
  // has theta^-((4 i + shift) / head_dim); shift is 0 for rows.
  double rope_theta = 0;  // 0: there is no rope
  int column_shift = 0;
  int64_t table_side = 0;              // positions are added from a square table; 0: there is none
  bool interpolated = false;           // the table is stretched over the image
  std::vector<RowStep> before, after;  // the layers

  int64_t head_dim() const { return width / heads; }
};

}  // namespace walsh::vision
