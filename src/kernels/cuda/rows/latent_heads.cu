// Expands the keys and values of latent attention (LatentDesc in arch/layer.h) to heads, and
// compacts them again, in place. One block per row. If values move to higher places, the last piece
// is moved first, otherwise the first one, so that nothing is overwritten before it is read.
#include <algorithm>
#include <string>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/rows.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kThreads = 256, kEach = 4, kPiece = kThreads * kEach;

// Writes `count` values to x, value i being read(i), from the last piece or from the first.
template <bool FromLast, typename Read>
__device__ __forceinline__ void move_row(float* x, int count, const Read& read) {
  const int pieces = (count + kPiece - 1) / kPiece;
  for (int p = 0; p < pieces; ++p) {
    const int begin = (FromLast ? pieces - 1 - p : p) * kPiece + static_cast<int>(threadIdx.x);
    float values[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int i = begin + e * kThreads;
      values[e] = i < count ? read(i) : 0.0f;
    }
    __syncthreads();  // the piece must be read completely before it is overwritten
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int i = begin + e * kThreads;
      if (i < count) x[i] = values[e];
    }
  }
}

// Grid: x over rows; y: keys, values.
__global__ void __launch_bounds__(kThreads)
    spread_kernel(const __grid_constant__ LatentHeads call) {
  allow_next_kernel();
  wait_previous_kernel();
  const int64_t row = blockIdx.x;
  const int dim = call.head_dim, count = call.heads * dim;
  if (blockIdx.y == 0) {
    float* x = call.key + row * call.ld;
    const float* shared = call.shared_key + row * call.rope_dim;
    const int turned = call.rope_dim, own = dim - turned;
    move_row<true>(x, count, [&](int i) {
      const int head = i / dim, at = i % dim;
      return at < turned ? shared[at] : x[head * own + at - turned];
    });
  } else {
    float* x = call.value + row * call.ld;
    move_row<true>(x, count, [&](int i) {
      const int head = i / dim, at = i % dim;
      return at < call.value_dim ? x[head * call.value_dim + at] : 0.0f;
    });
  }
}

// Grid: x over rows.
__global__ void __launch_bounds__(kThreads)
    close_kernel(float* rows, int64_t ld, int heads, int head_dim, int value_dim) {
  allow_next_kernel();
  wait_previous_kernel();
  float* x = rows + int64_t{blockIdx.x} * ld;
  move_row<false>(x, heads * value_dim,
                  [&](int i) { return x[i / value_dim * head_dim + i % value_dim]; });
}

void check_shape(int heads, int head_dim, int value_dim, int64_t ld) {
  if (heads > 0 && value_dim > 0 && value_dim <= head_dim && int64_t{heads} * head_dim <= ld)
    return;
  throw Error(ErrorCode::internal, "GPU latent attention",
              std::to_string(heads) + " heads of " + std::to_string(head_dim) + " and " +
                  std::to_string(value_dim) + " values in rows of " + std::to_string(ld));
}

}  // namespace

void spread_heads(const LatentHeads& call, Stream stream) {
  if (call.m == 0) return;
  check_shape(call.heads, call.head_dim, call.value_dim, call.ld);
  if (call.rope_dim <= 0 || call.rope_dim >= call.head_dim)
    throw Error(ErrorCode::internal, "GPU latent attention", "no own values of keys");
  launch("heads of a latent", spread_kernel,
         {dim3(static_cast<unsigned>(call.m), 2), dim3(kThreads)}, stream, call);
}

void close_values(float* rows, int64_t ld, int64_t m, int heads, int head_dim, int value_dim,
                  Stream stream) {
  if (m == 0) return;
  check_shape(heads, head_dim, value_dim, ld);
  launch("values of a latent", close_kernel, {dim3(static_cast<unsigned>(m)), dim3(kThreads)},
         stream, rows, ld, heads, head_dim, value_dim);
}

}  // namespace walsh::cuda
