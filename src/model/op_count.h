// Counts the arithmetic of weights and rotations for one decoded token. It shows what a format or a
// folded rotation saves, independent of any machine. Norms, attention and the quantization of
// activations are the same for all formats and are not counted.
#pragma once

#include <cstdint>

#include "codec/op_count.h"
#include "model/model.h"

namespace walsh {

// Counts the product of W [rows, cols] and a vector in `planes` int8 planes (0 counts as 1).
// A weight, by kind of code, takes:
//   dense    a multiplication and an addition
//   scalar   the same and a look-up (none for 8 bits, where the code is the level); a scale and an
//            offset take a multiplication and an addition each
//   trellis  the same as scalar, with a look-up and the multiplication of the state per step
//   product  no work of its own: a table of the products of every four activations with all entries
//            of the codebook is filled once for all rows; then a row looks its pointers up, adds or
//            subtracts the activations by their signs, and multiplies once per scale
OpCount count_product(const Format& format, int64_t rows, int64_t cols, int planes);

// Counts one rotation of a vector of `size` values. It takes a multiplication by sign and factor
// per value, then n log2 n additions per block of n values. A random orthogonal block takes n^2
// multiplications and n^2 additions instead.
OpCount count_transform(const Rotation& rotation, int64_t size);

// Counts what a layer does for one token: preparing all forms of its activations, and multiplying
// all matrices that the token passes.
OpCount count_layer(const Model& model, int64_t layer);
OpCount count_head(const Model& model);
// Counts what looking up a token takes, i.e. rotating a row of a coded embedding back.
OpCount count_embedding(const Model& model);

}  // namespace walsh
