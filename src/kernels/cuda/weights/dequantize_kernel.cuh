// Runs the kernels of dequantize.h for one type of results. They are bound by memory.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <utility>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/weights/dequantize_launch.h"
#include "kernels/cuda/weights/pass_view.h"
#include "walsh/error.h"

namespace walsh::cuda::detail {
namespace {

// Warps take consecutive k-tiles of 256 columns, at most one segment of 1024 together.
constexpr int kWarps = 4;

__device__ uint32_t pack_pair(float a, float b, bool bf16) {
  if (bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  const __half2 pair = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Joins the k-tiles of segments of 512 and 1024 columns, which belong to neighbouring warps. All
// threads of the block take part.
__device__ void join_k_tiles(float (&value)[2][4][8], const KTileShape& shape, float* shared) {
#pragma unroll 1
  for (int step = 1; step <= 2; ++step) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 64; ++k)
      shared[k * (kWarps * 32) + threadIdx.x] = value[k / 32][k / 8 % 4][k % 8];
    __syncthreads();
    if (!(step == 1 ? shape.join512 : shape.join1024)) continue;
    const float sign = threadIdx.x / 32 & step ? -1.0f : 1.0f;
    const float* other = shared + (threadIdx.x ^ (32 * step));
#pragma unroll
    for (int k = 0; k < 64; ++k) {
      float& v = value[k / 32][k / 8 % 4][k % 8];
      v = __fmaf_rn(sign, v, other[k * (kWarps * 32)]);
    }
  }
}

// Holds what a warp needs of a pass besides codes. It is the same for every tile.
struct KTileState {
  KTileShape shape;
  uint32_t signs[8] = {};

  __device__ KTileState(const PassView& w, int k_tile, int lane) {
    if (w.block == 0) return;
    shape = k_tile_shape(k_tile, w);
    k_tile_signs(k_tile, w, lane, signs);
  }
};

// Computes row g + 8 `half` of every lane in the output's basis, without signs.
template <typename Decoder>
__device__ void row_values(const PassView& w, const TileStage<Decoder>& stage, int half,
                           const KTileShape& shape, int lane, float* shared,
                           float (&value)[2][4][8]) {
  uint32_t levels[2][4][4];
  decode_levels<Decoder>(w, stage, lane, half, levels);
  if (w.block == 0) {
    plain_values(levels, stage, w, half, lane, value);
    return;
  }
  rotate_back(levels, stage, w, half, shape, lane, value);
  if (w.block > kKTileColumns) join_k_tiles(value, shape, shared);
}

__device__ void flip_signs(const uint32_t (&signs)[8], int t, float (&value)[2][4][8]) {
#pragma unroll
  for (int k = 0; k < 64; ++k) {
    float& v = value[k / 32][k / 8 % 4][k % 8];
    const int r = k % 8;
    const uint32_t flip = signs[k / 8] << (4 * t + r / 2 + (r % 2 ? 0 : 16)) & 0x80000000u;
    v = __uint_as_float(__float_as_uint(v) ^ flip);
  }
}

// Returns the value of element r of 8 neighbours, with the sign that the word holds for it.
__device__ float turned(const float* v, int r, uint32_t signs) {
  const uint32_t flip = signs << (r / 2 + (r % 2 ? 0 : 16)) & 0x80000000u;
  return __uint_as_float(__float_as_uint(v[r]) ^ flip);
}

__device__ void store_floats(const float* v, uint32_t signs, void* out) {
#pragma unroll
  for (int r = 0; r < 8; r += 4) {
    __stcg(static_cast<float4*>(out) + r / 4,
           make_float4(turned(v, r, signs), turned(v, r + 1, signs), turned(v, r + 2, signs),
                       turned(v, r + 3, signs)));
  }
}

// Stores a row. Output is uint16_t for values of 16 bits, or float. (A kernel for both would need
// more registers than there are.)
template <typename Output>
__device__ void store_row(const float (&value)[2][4][8], const uint32_t (&signs)[8],
                          const DequantizeTarget& target, int row, int k_tile, int t) {
  if (row < target.row_begin || row >= target.row_end) return;
  auto* out = static_cast<Output*>(target.data) +
              static_cast<int64_t>(row - target.row_begin) * target.cols;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const int column = k_tile * kKTileColumns + 32 * k;
    if (column >= target.cols) break;
    const float* v = value[k / 4][k % 4];
    if constexpr (sizeof(Output) == sizeof(float)) {
      store_floats(v, signs[k] << (4 * t), out + column + 8 * t);
    } else {
      uint32_t packed[4];
#pragma unroll
      for (int p = 0; p < 4; ++p)
        packed[p] = pack_pair(v[2 * p], v[2 * p + 1], target.bf16) ^
                    (signs[k] << (4 * t + p) & 0x80008000u);
      // This store instruction is explicit, because a plain assignment is compiled to four stores,
      // which write each sector in four parts.
      __stcg(reinterpret_cast<uint4*>(out + column + 8 * t),
             make_uint4(packed[0], packed[1], packed[2], packed[3]));
    }
  }
}

// Stands for the decoder of a second pass if there is none.
struct NoPass {
  static constexpr int kVectors = 0;
};

// Holds a stage of a warp's ring. A residual format has a second pass in each.
template <typename First, typename Second>
struct Stage {
  TileStage<First> first;
  TileStage<Second> second;
};
template <typename First>
struct Stage<First, NoPass> {
  TileStage<First> first;
};
template <typename First, typename Second>
constexpr int kStages = First::kVectors + Second::kVectors > 4 ? 2 : 3;

template <typename First, typename Second, typename Output>
__global__ void __launch_bounds__(kWarps * 32, Second::kVectors ? 2 : 3)
    dequantize_kernel(const __grid_constant__ PassView first,
                      const __grid_constant__ PassView second,
                      const __grid_constant__ DequantizeTarget target) {
  extern __shared__ float shared[];
  constexpr bool kResidual = Second::kVectors > 0;
  constexpr int kRing = kStages<First, Second>;
  __shared__ Stage<First, Second> stages[kWarps][kRing];
  auto& ring = stages[threadIdx.x / 32];
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  // A warp beyond the last k-tile repeats it without storing, because the block synchronizes.
  const int wanted = blockIdx.x * kWarps + threadIdx.x / 32;
  const int k_tile = min(wanted, first.k_tiles - 1);
  const int begin = target.row_begin / 16 + blockIdx.y, end = (target.row_end + 15) / 16;
  const auto load = [&](int k) {
    const int tile = begin + k * static_cast<int>(gridDim.y);
    if (tile < end) {
      load_stage(ring[k % kRing].first, first, tile, k_tile, lane);
      if constexpr (kResidual) load_stage(ring[k % kRing].second, second, tile, k_tile, lane);
    }
    copy_commit();
  };
  for (int k = 0; k < kRing - 1; ++k)
    load(k);
  if constexpr (First::kTable) {
    First::load_table(first.table);
    __syncthreads();
  }
  const KTileState state(first, k_tile, lane);
  const KTileState state2(kResidual ? second : PassView(), k_tile, lane);
  for (int k = 0, tile = begin; tile < end; ++k, tile += gridDim.y) {
    copy_wait<kRing - 2>();
    __syncwarp();
    load(k + kRing - 1);
    const auto& stage = ring[k % kRing];
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      float value[2][4][8];
      row_values<First>(first, stage.first, half, state.shape, lane, shared, value);
      const int row = wanted == k_tile ? tile * 16 + g + 8 * half : target.row_end;
      if constexpr (!kResidual) {
        store_row<Output>(value, state.signs, target, row, k_tile, t);
      } else {
        float residual[2][4][8];
        row_values<Second>(second, stage.second, half, state2.shape, lane, shared, residual);
        flip_signs(state.signs, t, value);
        flip_signs(state2.signs, t, residual);
#pragma unroll
        for (int e = 0; e < 64; ++e)
          value[e / 32][e / 8 % 4][e % 8] += residual[e / 32][e / 8 % 4][e % 8];
        constexpr uint32_t kNone[8] = {};
        store_row<Output>(value, kNone, target, row, k_tile, t);
      }
    }
    __syncwarp();  // The stage may be refilled.
  }
}

template <typename First, typename Second, typename Output>
void launch(const PassView& first, const PassView& second, const DequantizeTarget& target,
            Stream stream) {
  const int resident = current_device().multiprocessors * (Second::kVectors ? 2 : 3);
  const int windows = (first.k_tiles + kWarps - 1) / kWarps;
  const int tiles = (target.row_end + 15) / 16 - target.row_begin / 16;
  const int rows = std::max(1, resident / windows), rounds = (tiles + rows - 1) / rows;
  const dim3 grid(static_cast<unsigned>(windows),
                  static_cast<unsigned>((tiles + rounds - 1) / rounds));
  const bool wide = std::max(first.block, second.block) > kKTileColumns;
  const int shared = wide ? 64 * kWarps * 32 * static_cast<int>(sizeof(float)) : 0;
  const auto kernel = dequantize_kernel<First, Second, Output>;
  allow_most_shared_memory(reinterpret_cast<const void*>(kernel), "dequantize");
  kernel<<<grid, kWarps * 32, static_cast<size_t>(shared), stream>>>(first, second, target);
  check_launch("dequantize");
}

// Launches the kernel of the codes of a product.
template <typename Output>
void dequantize_to(const RowMatmul& product, const PassView& first, const PassView& second,
                   const DequantizeTarget& target, Stream stream) {
  const DecoderKind decoder = product.pass[0]->code.decoder;
  if (product.pass[1] == nullptr) {
    return with_decoder(decoder, [&]<typename Decoder>() {
      launch<Decoder, NoPass, Output>(first, second, target, stream);
    });
  }
  const auto pair = std::pair(decoder, product.pass[1]->code.decoder);
  if (pair == std::pair(DecoderKind::scalar3, DecoderKind::scalar2)) {
    launch<ScalarDecoder<3>, ScalarDecoder<2>, Output>(first, second, target, stream);
  } else if (pair == std::pair(DecoderKind::scalar4, DecoderKind::scalar2)) {
    launch<ScalarDecoder<4>, ScalarDecoder<2>, Output>(first, second, target, stream);
  } else if (pair == std::pair(DecoderKind::scalar4, DecoderKind::scalar4)) {
    launch<ScalarDecoder<4>, ScalarDecoder<4>, Output>(first, second, target, stream);
  } else {
    throw Error(ErrorCode::internal, "dequantize", "no kernel for these two passes");
  }
}

}  // namespace
}  // namespace walsh::cuda::detail
