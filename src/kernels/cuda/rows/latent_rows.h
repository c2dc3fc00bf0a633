// Handles rows of latent attention, whose cache has latents (LatentDesc in arch/layer.h): what is
// done in front of attention, and the products of heads.
#pragma once

#include "base/cuda/device.h"
#include "base/dtype.h"
#include "kernels/cuda/attention/attention.h"

namespace walsh::cuda {

// Holds the arguments of keep_latents for m rows.
struct LatentRows {
  float* q = nullptr;  // [m][ldq]: of every head, the first 2 * pairs values turn in place
  int64_t ldq = 0;
  int heads = 0, head_dim = 0;
  const float* latent = nullptr;  // [m][ld_latent]
  int64_t ld_latent = 0;
  const float* gain = nullptr;  // of the latent's norm
  float eps = 0;
  const float* shared_key = nullptr;  // [m][ld_shared], whose first 2 * pairs values turn
  int64_t ld_shared = 0;
  const float* cos = nullptr;  // [positions][pairs] on the device
  const float* sin = nullptr;
  int pairs = 0;
  const float* q_scale = nullptr;  // [positions] factors of queries, or null
  int64_t m = 0;
};

// Turns queries and shared keys, applies the norm to latents, and appends both to the pool, in one
// launch. Bits equal those of the CPU, except for the order in which squares are added in double.
void keep_latents(const LatentRows& call, const KvPool& cache, const PageTable& table,
                  const RowPlaces& rows, Stream stream);

// Computes y[t][h] = W[h] x[t][h] without the first `kept` values of x[t][h], which come behind the
// results. W is [heads][rows][cols] of a plain type, x[t][h] has kept + cols values, y[t][h] rows +
// kept. `kept`, cols and ldx are even, and x is 8-byte aligned.
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
