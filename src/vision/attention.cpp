// Computes the attention of an image's rows to each other by two products per head: the kernels
// that multiply plain weights take keys, and values turned, in the place of weights.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "vision/rows.h"

namespace walsh::vision {
namespace {

constexpr int64_t kQueries = 32;  // a block has this many queries
constexpr int64_t kLanes = 16;    // Ops::weigh takes rows of a multiple of this

}  // namespace

void attend(const ImageAttention& call, ThreadPool& pool) {
  const Ops& kernels = ops();
  const int64_t n = call.count, dim = call.head_dim, width = call.heads * dim;
  const int64_t padded = (n + kLanes - 1) / kLanes * kLanes;
  AlignedArray<float> keys(static_cast<size_t>(call.heads * n * dim));
  AlignedArray<float> values(static_cast<size_t>(width * padded));
  pool.for_each(call.heads, [&](int64_t head) {
    float* k = keys.data() + head * n * dim;
    float* v = values.data() + head * dim * padded;
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(call.k + i * call.ld + head * dim, dim, k + i * dim);
      for (int64_t d = 0; d < dim; ++d)
        v[d * padded + i] = call.v[i * call.ld + head * dim + d];
    }
  });
  AttentionOptions options;
  options.scale = 1 / std::sqrt(static_cast<float>(dim));
  std::vector<AlignedArray<float>> scratch(static_cast<size_t>(pool.size()));
  const int64_t blocks = (n + kQueries - 1) / kQueries;
  pool.for_each(call.heads * blocks, [&](int64_t item, int thread) {
    const int64_t head = item / blocks, first = item % blocks * kQueries;
    const int64_t m = std::min(kQueries, n - first);
    AlignedArray<float>& weights = scratch[static_cast<size_t>(thread)];
    if (weights.empty()) weights = AlignedArray<float>(static_cast<size_t>(kQueries * padded));
    float totals[kQueries];
    kernels.matmul_dense(DType::f32, keys.data() + head * n * dim, dim,
                         call.q + first * call.ld + head * dim, call.ld, m, weights.data(), padded,
                         0, n);
    for (int64_t i = 0; i < m; ++i) {
      float largest = -std::numeric_limits<float>::infinity();
      totals[i] = 0;
      kernels.weigh(weights.data() + i * padded, padded, 0, n, options, 0, &largest, &totals[i]);
    }
    float* out = call.out + first * width + head * dim;
    kernels.matmul_dense(DType::f32, values.data() + head * dim * padded, padded, weights.data(),
                         padded, m, out, width, 0, dim);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t d = 0; d < dim; ++d)
        out[i * width + d] /= totals[i];
    }
  });
}

}  // namespace walsh::vision
