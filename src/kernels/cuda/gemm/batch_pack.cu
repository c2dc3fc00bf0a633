// Packs the inputs of a batch as f16 in the order of wgmma's operands (gemm/batch_launch.h).
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemm/batch_launch.h"
#include "kernels/cuda/gemm/batch_values.cuh"
#include "kernels/cuda/launch.h"

namespace walsh::cuda::detail {
namespace {

constexpr int kThreads = 256;

// Returns the largest scale of a vector's groups to all threads. It ignores NaN, which stays in its
// group.
__device__ float largest_scale(const float* scales, int count) {
  __shared__ float largest[kThreads / 32];
  float own = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads)
    own = fmaxf(own, scales[i]);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
    own = fmaxf(own, __shfl_xor_sync(~0u, own, mask));
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = own;
  __syncthreads();
  for (const float other : largest)
    own = fmaxf(own, other);
  return own;
}

// Packs vector blockIdx.x. A thread packs 16 columns of it, which are two units of 16 bytes.
template <BatchOrder Order>
__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ BatchPack p) {
  allow_next_kernel();
  wait_previous_kernel();
  const auto vector = static_cast<int>(blockIdx.x);
  const int groups = p.cols / kChunkColumns;  // They are those of a plane.
  const float* scales = p.x_scales + static_cast<int64_t>(vector) * p.planes * groups;
  const float largest = largest_scale(scales, p.planes * groups);
  if (blockIdx.y == 0 && threadIdx.x == 0) p.vector_scales[vector] = largest;
  const float inverse = batch_inverse(largest);

  const int index = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  const int chunks = p.cols / kBatchChunk * p.planes;
  const int j = index % kBatchProducts, chunk = index / kBatchProducts;
  if (chunk >= chunks) return;
  const int c = chunk % kBatchChunks, step = chunk / kBatchChunks;
  const int k_tile = step / p.planes, plane = step % p.planes;
  const int group = 2 * k_tile + c / 2;
  const float scale = scales[plane * groups + group] * inverse;
  const int8_t* from = p.q + (static_cast<int64_t>(vector) * p.planes + plane) * p.cols +
                       static_cast<int64_t>(group) * kChunkColumns;
  uint32_t unit[2][4];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const int column =
        c % 2 * kBatchChunk +
        (Order == BatchOrder::tiles ? 16 * t + 4 * j : j / 2 * 32 + 8 * t + j % 2 * 4);
    const auto bytes = *reinterpret_cast<const uint32_t*>(from + activation_byte(column));
    const auto pair = [&](int i) {
      return pair_of(signed_byte(bytes, i) * scale, signed_byte(bytes, i + 1) * scale);
    };
    unit[0][t] = pair(0);
    unit[1][t] = pair(2);
  }
  const int in_block = vector % p.vectors;
  std::byte* to = p.to + (static_cast<int64_t>(vector / p.vectors) * chunks + chunk) *
                             batch_chunk_bytes(p.vectors);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    reinterpret_cast<uint4*>(to)[in_block * 8 + ((2 * j + h) ^ (in_block % 8))] =
        make_uint4(unit[h][0], unit[h][1], unit[h][2], unit[h][3]);
  }
}

}  // namespace

void pack_batch(const BatchPack& pack, Stream stream) {
  const int products = pack.cols / 16 * pack.planes;
  const dim3 blocks(static_cast<unsigned>(pack.m),
                    static_cast<unsigned>((products + kThreads - 1) / kThreads));
  cuda::launch("packed inputs",
               pack.order == BatchOrder::tiles ? pack_kernel<BatchOrder::tiles>
                                               : pack_kernel<BatchOrder::eights>,
               {blocks, dim3(kThreads)}, stream, pack);
}

}  // namespace walsh::cuda::detail
