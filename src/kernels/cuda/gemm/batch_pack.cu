// Packs int8 inputs of a batch in the order of stages (gemm/batch_values.cuh).
#include "base/checked.h"
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemm/batch_values.cuh"
#include "kernels/cuda/launch.h"

namespace walsh::cuda::detail {
namespace {

constexpr int kWarps = 8;

// Packs vector blockIdx.x. A warp packs a plane of a k-tile.
__global__ void __launch_bounds__(kWarps * 32) pack_kernel(const __grid_constant__ BatchPack p) {
  allow_next_kernel();
  wait_previous_kernel();
  const auto vector = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int step = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x / 32);
  const int k_tile = step / p.planes, plane = step % p.planes;
  if (k_tile >= p.cols / kKTileColumns) return;
  const int64_t row = static_cast<int64_t>(vector) * p.planes + plane;
  const int column = k_tile * kKTileColumns + lane * 8;
  const int group = column / kChunkColumns;
  const int8_t* from = p.q + row * p.cols + int64_t{group} * kChunkColumns;
  const uint2 bytes =
      *reinterpret_cast<const uint2*>(from + activation_byte(column % kChunkColumns));
  const float scale = p.x_scales[row * (p.cols / kChunkColumns) + group];
  int sum = __dp4a(static_cast<int>(bytes.x), 0x01010101,
                   __dp4a(static_cast<int>(bytes.y), 0x01010101, 0));
#pragma unroll
  for (int mask = 8; mask > 0; mask /= 2)
    sum += __shfl_xor_sync(~0u, sum, mask);
  store_batch_input(p, vector, step, lane, bytes, scale, sum);
}

}  // namespace

void pack_batch(const BatchPack& pack, Stream stream) {
  const int steps = pack.cols / kKTileColumns * pack.planes;
  const dim3 blocks(static_cast<unsigned>(pack.m), static_cast<unsigned>(ceil_div(steps, kWarps)));
  cuda::launch("packed inputs", pack_kernel, {blocks, dim3(kWarps * 32)}, stream, pack);
}

}  // namespace walsh::cuda::detail
