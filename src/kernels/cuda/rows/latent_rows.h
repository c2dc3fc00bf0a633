// Handles rows of latent attention, whose cache has latents (LatentDesc in arch/layer.h). It has
// what is done in front of attention, and the products of heads.
#pragma once

#include "base/cuda/device.h"
#include "base/dtype.h"
#include "kernels/cuda/attention/attention.h"

namespace walsh::cuda {

// Holds the arguments of keep_latents for m rows.
struct LatentRows {
  // It has the shape [m][ldq]; the first 2 * pairs values of every head turn in place.
  float* q = nullptr;
  int64_t ldq = 0;
  int heads = 0, head_dim = 0;
  const float* latent = nullptr;  // Its shape is [m][ld_latent].
  int64_t ld_latent = 0;
  const float* gain = nullptr;  // The norm of the latent has this gain.
  float eps = 0;
  // Its shape is [m][ld_shared]; the first 2 * pairs values turn.
  const float* shared_key = nullptr;
  int64_t ld_shared = 0;
  const float* cos = nullptr;  // Its shape is [positions][pairs], on the device.
  const float* sin = nullptr;
  int pairs = 0;
  const float* q_scale = nullptr;  // They are factors of queries, [positions], or null.
  int64_t m = 0;
};

// Turns queries and shared keys, applies the norm to latents, and appends both to the pool, in one
// launch. Bits equal those of the CPU, except for the order in which squares are added in double.
void keep_latents(const LatentRows& call, const KvPool& cache, const PageTable& table,
                  const RowPlaces& rows, Stream stream);

// Describes y[t][h] = W[h] x[t][h] without the first `kept` values of x[t][h], which come after
// the results. W is [heads][rows][cols] of a plain type; x[t][h] has kept + cols values, and
// y[t][h] has rows + kept. `kept`, cols and ldx are even, and x is 8-byte aligned.
struct HeadProducts {
  DType type = DType::f16;
  const void* w = nullptr;
  int heads = 0, rows = 0, cols = 0, kept = 0;
  const float* x = nullptr;
  int64_t ldx = 0;
  float* y = nullptr;
  int64_t ldy = 0;
  int64_t m = 0;
};
void multiply_heads(const HeadProducts& call, Stream stream);

}  // namespace walsh::cuda
