// Declares operations between products: the embedding of tokens, rope with the append to the cache,
// adding a branch to the residual stream, and the cap of logits.
#pragma once

#include <cstdint>

#include "base/cuda/device.h"
#include "codec/format.h"
#include "kernels/cuda/attention/attention.h"
#include "rotate/rotation.h"

namespace walsh::cuda {

// Holds the arguments of rope_and_store for m rows of queries, keys and values, [m][ld] floats
// each, heads side by side.
struct RopeCall {
  float* q = nullptr;  // They are normed and turned in place.
  int64_t ldq = 0;
  // Keys get norm and rope and are stored in the cache. If this is null, there are only queries.
  const float* k = nullptr;
  int64_t ldk = 0;
  const float* v = nullptr;  // They are normed and stored; they may be k.
  int64_t ldv = 0;
  int64_t m = 0;
  int heads = 0;
  // These are the gains of an RMSNorm per head, [head_dim], or null.
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float eps = 0;
  bool norms_turned = false;      // q_norm and k_norm come after the rotation
  const float* v_norm = nullptr;  // [head_dim] or null
  float v_eps = 0;
  // Angles are [positions][rotated / 2] on the device. Null means that nothing is turned.
  const float* cos = nullptr;
  const float* sin = nullptr;
  const float* q_scale = nullptr;  // They are factors for queries, [positions], or null.
  // Pairs (i, i + rotated / 2) of a head are turned; values from `rotated` on (even) are not. 0
  // stands for the whole head.
  int rotated = 0;
};

// Returns how many pairs a call turns. Throws internal if heads of head_dim values have fewer.
int turned_pairs(const RopeCall& call, int head_dim);

// Computes x = x * gain / sqrt(mean(x^2) + eps) for m rows of `width` values, in place and in one
// launch. Bits equal those of the CPU, except for the order in which squares are added in double.
void norm_rows(float* x, int64_t m, int64_t width, const float* gain, float eps, Stream stream);

// Computes x = x - mean(x) for m rows of `width` values, in place and in one launch. Bits equal
// those of the CPU, except for the order in which values are added in double.
void center_rows(float* x, int64_t m, int64_t width, Stream stream);

// Applies norm and rope and fills the cache in one launch. Bits equal those of the CPU's norm, rope
// and conversion to fp16, except for the order in which squares are added in double.
void rope_and_store(const RopeCall& call, const KvPool& cache, const PageTable& table,
                    const RowPlaces& rows, Stream stream);

// Computes out[t][0..width) = x[t * ldx ..] for m rows.
void copy_rows(const float* x, int64_t ldx, int64_t m, int64_t width, float* out, Stream stream);

// Describes the embedding of tokens [rows, cols] on the device as stored. It is dense `data`, or
// the arrays of one or two passes with their rotations (hadamard or none).
struct StoredTable {
  struct Pass {
    const void* codes = nullptr;
    const void* scales = nullptr;
    const void* offsets = nullptr;     // It is set if has_offset.
    const void* sub_scales = nullptr;  // It is set if sub_group.
    const void* codebook = nullptr;    // Product codes have it.
    // Trellis codes have it, unless scales are per row and block.
    const void* col_scales = nullptr;
    Rotation rotation;
  };
  const Format* format = nullptr;
  int64_t rows = 0, cols = 0;
  const void* data = nullptr;
  Pass pass[2];
};

// Computes x[t][0..cols) = scale * row tokens[t] of the table in the original basis, with the CPU's
// bits. The device reads token ids; a row whose id is outside [0, rows) becomes NaN.
void embed(const StoredTable& table, const int32_t* tokens, int64_t m, float* x, int64_t ldx,
           float scale, Stream stream);

// Adds a layer's branch to the residual stream, m rows of `width` values:
//   x += scale * branch * gain / sqrt(mean(branch^2) + eps)   with a gain,
//   x += scale * branch                                       without one,
// and with a factor x *= factor after that.
struct BranchCall {
  const float* branch = nullptr;  // Its shape is [m][width].
  const float* gain = nullptr;    // Its shape is [width]; null: there is no norm.
  float eps = 0;                  // It is > 0 with a gain.
  float scale = 1;
  const float* factor = nullptr;  // It multiplies x and is on the device; or null.
  float* x = nullptr;             // Its shape is [m][width].
  int64_t m = 0, width = 0;
};

// Adds the branch in one launch. Bits equal those of the CPU, except for the order in which squares
// are added in double.
void add_branch(const BranchCall& call, Stream stream);

// Computes out[t][0..width) = x[rows[t]][0..width) for m rows; `rows` is on the device.
void gather_rows(const float* x, int64_t width, const int32_t* rows, int64_t m, float* out,
                 Stream stream);

// Scales and caps logits[t][0..vocab) of m rows in place: x = scale * logit, then cap * tanh(x /
// cap) unless cap (>= 0) is 0.
void cap_logits(float* logits, int64_t m, int64_t vocab, float scale, float cap, Stream stream);

}  // namespace walsh::cuda
