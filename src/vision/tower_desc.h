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
    product,  // it multiplies with a matrix and adds its bias, if it has one
    activate,
    merge,   // rows of side x side become one that has the values of all
    average  // or their means
  };
  Kind kind = Kind::rms_norm;
  std::string name = {};  // it names the tensors, without ".weight" and ".bias"
  float eps = 0;          // norms add it to the mean square
  float gain_offset = 0;  // rms_norm adds it to the stored gain
  int64_t width = 0;      // a product gives rows of this width
  bool bias = false;
  bool turned = false;  // a product's matrix is stored as [columns][rows], without ".weight"
  Activation activation = Activation::gelu;
  int64_t side = 1;
  // A merge puts the values of a channel side by side, not those of a row.
  bool by_channel = false;
};

// Describes rows that are made of what a layer gives, beside those of the last one.
struct TowerBranch {
  int64_t layer = 0;  // The steps begin with the output of this layer.
  std::vector<RowStep> steps;
};

// Names the tensors of a layer. The number of the layer stands in front of a name, ".weight" or
// ".bias" behind it.
struct LayerNames {
  std::string layers;  // it stands in front of the number
  // An empty name means that there is no such tensor.
  std::string norm1, q, k, v, qkv, out, norm2, gate, up, down;
};

struct TowerDesc {
  // A tensor's name in the checkpoint begins with one of these; the steps behind the tower have
  // them too.
  std::vector<std::string> prefixes;
  LayerNames names;
  std::string patch_name, position_name;
  int64_t patch = 0;
  // This many copies of an image are read together; 0 means that the matrix has no such axis.
  int64_t frames = 0;
  int64_t width = 0, heads = 0, hidden = 0, layers = 0;
  float eps = 0;
  bool rms = false;   // norms are RMSNorms, otherwise LayerNorms
  bool bias = false;  // the products in layers and that with patches have one
  Activation activation = Activation::gelu;
  // Rows and columns turn the first and the second half of a head's frequencies. Pair i of a half
  // has theta^-((4 i + shift) / head_dim); shift is 0 for rows.
  double rope_theta = 0;  // 0 means that there is no rope
  int column_shift = 0;
  // Positions are added from a square table of this side; 0 means that there is none.
  int64_t table_side = 0;
  bool interpolated = false;           // the table is stretched over the image
  std::vector<RowStep> before, after;  // these steps stand before and after the layers
  // A row has the values that `after` gives, and then those of the branches, in this order.
  std::vector<TowerBranch> branches;

  int64_t head_dim() const { return width / heads; }
};

}  // namespace walsh::vision
