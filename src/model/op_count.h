// The arithmetic that decoding one token costs with weights and rotations: what a format or a
// folded rotation saves, independent of any machine. Norms, attention and the quantization of
// activations are the same for all formats and not counted.
#pragma once

#include <cstdint>

#include "formats/format.h"
#include "model/model.h"

namespace walsh {

struct OpCount {
  uint64_t multiplications = 0, additions = 0, lookups = 0;
  uint64_t transforms = 0;  // rotations of an activation at run time

  OpCount& operator+=(const OpCount& other);
  bool operator==(const OpCount&) const = default;
};

// W [rows, cols] times one vector that is held in `planes` int8 planes (0 or 1: once).
//   dense    a multiplication and an addition per weight
//   scalar   the same with a look-up per weight (none for 8 bits: the code is the level), and a
//            multiplication and an addition per scale and per offset
//   trellis  as scalar, with a look-up and the multiplication of the state per step of the code
//   product  by look-up: a table of the products of every four activations with all entries of
//            the codebook is filled once for all rows; a row then looks its pointers up, adds or
//            subtracts the activations by their signs and multiplies once per scale
OpCount count_product(const Format& format, int64_t rows, int64_t cols, int planes);

// One rotation of a vector of `size` values: a multiplication per value by sign and factor, then
// n log2 n additions per block of n; n^2 of both for random orthogonal blocks.
OpCount count_transform(const Rotation& rotation, int64_t size);

// All forms of all activations and all matrices that a token is multiplied with.
OpCount count_layer(const Model& model, int64_t layer);
OpCount count_head(const Model& model);
// Looking a token up: the inverse rotations of a coded embedding.
OpCount count_embedding(const Model& model);

}  // namespace walsh
