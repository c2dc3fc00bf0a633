// Multiplies plain matrices of experts with float rows. A warp takes two rows of the matrix and all
// slots of an item. Sums are float32, in an order that does not depend on the other slots.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <limits>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/launch.h"
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
  int first_block = 0;
  bool add = false;
};

struct DenseArgs {
  DenseSet set[kMaxMatmuls];
  int64_t stride = 0;
  const ExpertItem* items = nullptr;
  const int32_t* rows = nullptr;
};

__device__ __forceinline__ float to_float(float v) {
  return v;
}
__device__ __forceinline__ float to_float(__half v) {
  return __half2float(v);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 v) {
  return __bfloat162float(v);
}

// Multiplies rows of a matrix with an item's slots. The grid spans rows of all products in x, and
// items in y.
template <typename T, int M>
__global__ void __launch_bounds__(kWarps * 32)
    expert_dense_kernel(const __grid_constant__ DenseArgs args) {
  wait_previous_kernel();
  allow_next_kernel();  // It may read the items immediately (expert_gemv.h).
  const ExpertItem item = args.items[blockIdx.y];
  if (item.count == 0) return;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int block = static_cast<int>(blockIdx.x);
  int s = 0;
  if (block >= args.set[1].first_block) s = 1;
  if (block >= args.set[2].first_block) s = 2;
  const DenseSet& set = args.set[s];
  const int64_t row = (int64_t{block - set.first_block} * kWarps + warp) * kRows;
  if (row >= set.rows) return;
  const int64_t bytes = item.expert * args.stride;
  const T* w[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    w[r] = reinterpret_cast<const T*>(static_cast<const unsigned char*>(set.weights) + bytes) +
           min(row + r, set.rows - 1) * set.cols;
  const float* x[M];
#pragma unroll
  for (int t = 0; t < M; ++t) {
    const int slot = item.first + min(t, item.count - 1);
    x[t] = set.x + (args.rows != nullptr ? args.rows[slot] : slot) * set.ldx;
  }
  float sum[kRows][M] = {};
#pragma unroll 4
  for (int64_t column = lane; column < set.cols; column += 32) {
    float weight[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      weight[r] = to_float(w[r][column]);
#pragma unroll
    for (int t = 0; t < M; ++t) {
      const float value = x[t][column];
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        sum[r][t] = fmaf(weight[r], value, sum[r][t]);
    }
  }
  const auto* bias = reinterpret_cast<const float*>(
      reinterpret_cast<const unsigned char*>(set.bias) + (set.bias != nullptr ? bytes : 0));
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < M; ++t) {
      float total = sum[r][t];
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        total += __shfl_xor_sync(~0u, total, distance);
      if (lane != 0 || t >= item.count || row + r >= set.rows) continue;
      if (bias != nullptr) total += bias[row + r];
      float& y = set.y[(item.first + t) * set.ldy + row + r];
      y = set.add ? y + total : total;
    }
  }
}

using DenseKernel = void (*)(DenseArgs);

template <typename T>
DenseKernel select_kernel(int per_item) {
  return per_item == 1 ? expert_dense_kernel<T, 1> : expert_dense_kernel<T, kVectorSlots>;
}

}  // namespace

void multiply_experts(std::span<const DenseMatmul> products, int64_t stride,
                      const ExpertBatch& batch, Stream stream) {
  const int64_t places = batch.plan.places(batch.slots, batch.experts);
  if (places == 0 || products.empty()) return;
  const DType type = products[0].weights->type;
  const bool one_type = std::all_of(products.begin(), products.end(),
                                    [&](const DenseMatmul& p) { return p.weights->type == type; });
  if (products.size() > kMaxMatmuls || !one_type || batch.plan.per_item > kVectorSlots)
    throw Error(ErrorCode::internal, "GPU product", "plain matrices of experts");
  DenseArgs args;
  args.stride = stride;
  args.items = batch.items;
  args.rows = batch.rows;
  int blocks = 0;
  for (size_t i = 0; i < kMaxMatmuls; ++i) {
    DenseSet& set = args.set[i];
    set.first_block = std::numeric_limits<int>::max();
    if (i >= products.size()) continue;
    const DenseMatmul& p = products[i];
    set = {p.weights->data.as(), p.x,    p.bias, p.y, p.ldx, p.ldy, p.weights->rows,
           p.weights->cols,      blocks, p.add};
    blocks += static_cast<int>((p.weights->rows + kWarps * kRows - 1) / (kWarps * kRows));
  }
  const int per_item = batch.plan.per_item;
  const DenseKernel kernel = type == DType::f32   ? select_kernel<float>(per_item)
                             : type == DType::f16 ? select_kernel<__half>(per_item)
                                                  : select_kernel<__nv_bfloat16>(per_item);
  launch("plain experts", kernel,
         {dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(places)), dim3(kWarps * 32)},
         stream, args);
}

}  // namespace walsh::cuda
