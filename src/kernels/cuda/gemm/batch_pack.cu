// Inputs of a batch in the order of wgmma's operands (gemm/batch_launch.h).
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemm/batch_launch.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/weights/permute.cuh"
#include "kernels/cuda/weights/trellis_decoder.cuh"

namespace walsh::cuda::detail {
namespace {

constexpr int kThreads = 256;
constexpr int kUnits = 8;  // of 16 bytes in an operand row

// Word t of unit `unit` of a chunk's row: four inputs of the chunk, or two of them twice.
template <BatchForm Form>
__device__ __forceinline__ uint32_t operand_word(const int8_t* chunk, int unit, int t) {
  const int product = unit / 2, half = unit % 2;
  if constexpr (Form == BatchForm::plain) {
    return *reinterpret_cast<const uint32_t*>(chunk + 32 * t + 8 * product + 4 * half);
  } else {
    // Quad `product` % 4 of tile t, of 64 columns.
    const int column = product / 4 * 64 + 16 * t + product % 4 * 4;
    const auto quad = *reinterpret_cast<const uint32_t*>(chunk + activation_byte(column));
    return permute(quad, 0, half ? 0x3232u : 0x1010u);
  }
}

// A thread has one unit of one vector's chunk.
template <BatchForm Form>
__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ BatchPack p) {
  allow_next_kernel();
  wait_previous_kernel();
  constexpr int kRows128 = batch_rows128(Form), kChunkUnits = kUnits * kRows128;
  const int steps = p.cols / kKTileColumns * p.planes;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int unit = static_cast<int>(index % kChunkUnits);
  const int c = static_cast<int>(index / kChunkUnits % 2);
  const int step = static_cast<int>(index / (2 * kChunkUnits) % steps);
  const auto vector = static_cast<int>(index / (2 * kChunkUnits) / steps);
  if (vector >= p.m) return;
  const int k_tile = step / p.planes, plane = step % p.planes;
  const int64_t row = static_cast<int64_t>(vector) * p.planes + plane;
  const int8_t* chunk = p.q + row * p.cols + k_tile * kKTileColumns + c * kChunkColumns;
  uint4 words;
  words.x = operand_word<Form>(chunk, unit, 0);
  words.y = operand_word<Form>(chunk, unit, 1);
  words.z = operand_word<Form>(chunk, unit, 2);
  words.w = operand_word<Form>(chunk, unit, 3);
  const int in_block = vector % p.vectors;
  std::byte* to = p.to + (static_cast<int64_t>(vector / p.vectors) * steps + step) *
                             batch_step_bytes(Form, p.vectors);
  const int place = ((c * kRows128 + unit / kUnits) * p.vectors + in_block) * kUnits +
                    ((unit % kUnits) ^ (in_block % 8));
  reinterpret_cast<uint4*>(to)[place] = words;
  if (unit > 0) return;
  auto* scales = reinterpret_cast<float*>(to + batch_operand_bytes(Form, p.vectors));
  const int64_t group = row * (p.cols / kChunkColumns) + 2 * k_tile;
  const float scale = p.x_scales[group + c];
  if constexpr (Form == BatchForm::doubled) {
    reinterpret_cast<float2*>(scales)[c * p.vectors + in_block] =
        make_float2(scale, __fmul_rn(static_cast<float>(-kTrellisZero * p.sums[group + c]), scale));
  } else {
    scales[c * p.vectors + in_block] = scale;
    if (c > 0) return;
    const float first = __fmul_rn(static_cast<float>(p.sums[group]), scale);
    scales[2 * p.vectors + in_block] =
        __fmaf_rn(static_cast<float>(p.sums[group + 1]), p.x_scales[group + 1], first);
  }
}

}  // namespace

void pack_batch(const BatchPack& pack, Stream stream) {
  const int64_t units = static_cast<int64_t>(pack.m) * (pack.cols / kKTileColumns) * pack.planes *
                        2 * kUnits * batch_rows128(pack.form);
  const dim3 blocks(static_cast<unsigned>((units + kThreads - 1) / kThreads));
  cuda::launch("packed inputs",
               pack.form == BatchForm::doubled ? pack_kernel<BatchForm::doubled>
                                               : pack_kernel<BatchForm::plain>,
               {blocks, dim3(kThreads)}, stream, pack);
}

}  // namespace walsh::cuda::detail
