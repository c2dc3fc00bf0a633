// Computes the steps of a vision tower on the rows of an image.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/ops.h"
#include "vision/image_grid.h"
#include "vision/tower_desc.h"
#include "vision/tower_tensors.h"

namespace walsh::vision {

// Computes y[i][0 ... rows of w) = W x_i + bias; rows of y lie `ldy` apart.
void multiply(const TowerMatrix& w, const Rows& x, float* y, int64_t ldy, ThreadPool& pool);
// Computes (x - mean) / sqrt(variance + eps) * gain + bias; out may be x.
void layer_norm(const float* x, std::span<const float> gain, std::span<const float> bias, float eps,
                float* out);
// Computes x = f(x), or x = f(x) * up where `up` is not null.
void activate(Activation function, float* x, const float* up, int64_t n);
// Computes the steps merge and average. Sides of the grid have to be multiples of `side`.
Rows merge(const Rows& x, int64_t side, bool by_channel);
Rows average(const Rows& x, int64_t side);

// Every row of `q` attends to all rows of `k` and `v`; pointers are to [count] rows of `ld` floats
// with the heads side by side. `out` has rows of heads * head_dim.
struct ImageAttention {
  int64_t count = 0, heads = 0, head_dim = 0;
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  int64_t ld = 0;
  float* out = nullptr;
};
void attend(const ImageAttention& call, ThreadPool& pool);

}  // namespace walsh::vision
