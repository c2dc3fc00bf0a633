// Multiplies plain matrices with up to 16 float rows. A warp takes two rows of the matrix, and its
// lanes share the columns, 16 bytes at a time. The order of the float32 sums does not depend on m.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemv/gemv.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/form_view.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kRows = 2;  // A warp takes this many rows.

struct DenseSet {
  const void* weights = nullptr;
  const float* x = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ldx = 0, ldy = 0;
  int64_t rows = 0, cols = 0;
  int64_t first_block = 0;
  bool add = false;
  // If true, weights and inputs can be read 16 bytes at a time.
  bool vectors = false;
};

struct DenseArgs {
  DenseSet set[kMaxMatmuls];
  int m = 0;
};

template <typename T>
__device__ float to_float(T v) {
  if constexpr (sizeof(T) == 4) {
    return v;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __half2float(v);
  } else {
    return __bfloat162float(v);
  }
}

// Adds the products of kWidth columns from `column` on.
template <typename T, int M, int kWidth>
__device__ __forceinline__ void add_columns(const DenseSet& set, const T* const (&w)[kRows],
                                            int64_t column, int m, float (&sum)[kRows][M]) {
  float weight[kRows][kWidth];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if constexpr (kWidth > 1) {
      const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(w[r] + column));
      const T* values = reinterpret_cast<const T*>(&raw);
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        weight[r][e] = to_float(values[e]);
    } else {
      weight[r][0] = to_float(w[r][column]);
    }
  }
#pragma unroll
  for (int t = 0; t < M; ++t) {
    if (t >= m) break;
    const float* x = set.x + t * set.ldx + column;
    float value[kWidth];
    if constexpr (kWidth > 1) {
#pragma unroll
      for (int e = 0; e < kWidth; e += 4)
        *reinterpret_cast<float4*>(value + e) = *reinterpret_cast<const float4*>(x + e);
    } else {
      value[0] = x[0];
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        sum[r][t] = fmaf(weight[r][e], value[e], sum[r][t]);
    }
  }
}

template <typename T, int M>
__global__ void __launch_bounds__(kWarps * 32)
    dense_kernel(const __grid_constant__ DenseArgs args) {
  constexpr int kWide = 16 / sizeof(T);
  allow_next_kernel();
  wait_previous_kernel();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  int s = 0;
  if (blockIdx.x >= args.set[1].first_block) s = 1;
  if (blockIdx.x >= args.set[2].first_block) s = 2;
  const DenseSet& set = args.set[s];
  const int64_t row = ((blockIdx.x - set.first_block) * kWarps + warp) * kRows;
  if (row >= set.rows) return;
  const T* w[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    w[r] = static_cast<const T*>(set.weights) + min(row + r, set.rows - 1) * set.cols;
  float sum[kRows][M] = {};
  if (set.vectors) {
#pragma unroll(M == 1 ? 4 : 1)
    for (int64_t column = lane * kWide; column < set.cols; column += 32 * kWide)
      add_columns<T, M, kWide>(set, w, column, args.m, sum);
  } else {
    for (int64_t column = lane; column < set.cols; column += 32)
      add_columns<T, M, 1>(set, w, column, args.m, sum);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < M; ++t) {
      float total = sum[r][t];
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        total += __shfl_xor_sync(~0u, total, distance);
      if (lane != 0 || t >= args.m || row + r >= set.rows) continue;
      if (set.bias) total += set.bias[row + r];
      float& y = set.y[t * set.ldy + row + r];
      y = set.add ? y + total : total;
    }
  }
}

template <typename T>
auto select_kernel(int64_t m) {
  return m == 1 ? dense_kernel<T, 1> : m <= 4 ? dense_kernel<T, 4> : dense_kernel<T, 16>;
}

void launch_dense(std::span<const DenseMatmul> products, int64_t m, Stream stream) {
  DenseArgs args;
  args.m = static_cast<int>(m);
  int64_t blocks = 0;
  for (size_t i = 0; i < kMaxMatmuls; ++i) {
    DenseSet& set = args.set[i];
    set.first_block = std::numeric_limits<int64_t>::max();
    if (i >= products.size()) continue;
    const DenseMatmul& p = products[i];
    const DenseMatrix& w = *p.weights;
    set = {w.data.as(), p.x, p.bias, p.y, p.ldx, p.ldy, w.rows, w.cols, blocks, p.add, false};
    set.vectors = w.cols * dtype_size(w.type) % 16 == 0 && w.cols % 4 == 0 && p.ldx % 4 == 0 &&
                  is_aligned(p.x) && is_aligned(set.weights);
    blocks += (w.rows + kWarps * kRows - 1) / (kWarps * kRows);
  }
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks)), dim3(kWarps * 32)};
  const DType type = products[0].weights->type;
  const auto kernel = type == DType::f32   ? select_kernel<float>(m)
                      : type == DType::f16 ? select_kernel<__half>(m)
                                           : select_kernel<__nv_bfloat16>(m);
  launch("plain matrix product", kernel, shape, stream, args);
}

}  // namespace

void gemv(std::span<const DenseMatmul> products, int64_t m, Stream stream) {
  if (m < 0 || m > kMaxVectors) {
    throw Error(ErrorCode::internal, "GPU product", std::to_string(m) + " vectors at once");
  }
  if (m == 0) return;
  for (size_t first = 0; first < products.size();) {
    size_t count = 1;
    while (count < kMaxMatmuls && first + count < products.size() &&
           products[first + count].weights->type == products[first].weights->type) {
      ++count;
    }
    launch_dense(products.subspan(first, count), m, stream);
    first += count;
  }
}

}  // namespace walsh::cuda
