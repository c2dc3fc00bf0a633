// Counts the arithmetic of weights and rotations for one decoded token. It shows what a format or a
// folded rotation saves, independent of any machine. Norms, attention and the quantization of
// activations are the same for all formats and are not counted.
#pragma once

#include <cstdint>

#include "codec/op_count.h"
#include "model/model.h"

namespace walsh {

// Counts W [rows, cols] times one vector that is held in `planes` int8 planes (0 or 1: once).
//   dense    a multiplication and an addition per weight
//   scalar   the same with a look-up per weight (none for 8 bits: the code is the level), and a
//            multiplication and an addition per scale and per offset
//   trellis  as scalar, with a look-up and the multiplication of the state per step of the code
//   product  by look-up: a table of the products of every four activations with all entries of
//            the codebook is filled once for all rows; a row then looks its pointers up, adds or
//            subtracts the activations by their signs and multiplies once per scale
OpCount count_product(const Format& format, int64_t rows, int64_t cols, int planes);

// Counts one rotation of a vector of `size` values: a multiplication by sign and factor per value,
// then n log2 n additions per block of n values; a random orthogonal block takes n^2
// multiplications and n^2 additions.
OpCount count_transform(const Rotation& rotation, int64_t size);

// Counts all forms of the activations of a layer and all matrices that a token is multiplied by.
OpCount count_layer(const Model& model, int64_t layer);
OpCount count_head(const Model& model);
// Counts the look-up of a token: the inverse rotations of a coded embedding.
OpCount count_embedding(const Model& model);

}  // namespace walsh
