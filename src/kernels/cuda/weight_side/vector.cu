// Runs GEMV that rotates weights back. Tiles of weights are rotated back in registers and
// multiplied with unrotated activations, to which all sign flips are applied once.
#include <algorithm>

#include "kernels/cuda/weight_side/kernels.h"
#include "kernels/cuda/weight_side/weight_side.h"
#include "walsh/error.h"

namespace walsh::cuda::detail {
namespace {

constexpr int kWarps = 4;    // Each takes every fourth k-tile of the columns.
constexpr int kTiles = 2;    // A block has this many tiles of 16 rows.
constexpr int kVectors = 4;  // A launch has this many, if it has more than one.

// Copies the warp's x[v][column of the k-tile] with signs flipped, and zeros beyond the columns.
template <int M>
__device__ void stage_inputs(const PassView& w, const WeightSideIo& io, int k_tile, int lane,
                             float (*x)[kKTileColumns]) {
  uint32_t signs[8];
  k_tile_signs(k_tile, w, lane, signs);
  // k_tile_signs explains it.
  const int shift = 16 * (lane % 2) + 15 - lane % 8 / 2 - 4 * (lane / 8);
  __syncwarp();
  for (int v = 0; v < M; ++v) {
    const float* from = static_cast<const float*>(io.x) + v * io.ldx + k_tile * kKTileColumns;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int column = 32 * k + lane;
      const bool valid = v < io.m && k_tile * kKTileColumns + column < w.cols;
      const float value = valid ? from[column] : 0.0f;
      x[v][column] = signs[k] >> shift & 1u ? -value : value;
    }
  }
  __syncwarp();
}

// Loads a lane's columns of a k-tile of one input, in the order of a row's values.
__device__ void lane_inputs(const float* x, int t, float4 (&in)[16]) {
#pragma unroll
  for (int k = 0; k < 16; ++k)
    in[k] = *reinterpret_cast<const float4*>(x + k / 2 * 32 + t * 8 + k % 2 * 4);
}

__device__ float dot(const float (&value)[2][4][8], const float4 (&x)[16]) {
  float part[4] = {};
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    const float* w = &value[k / 8][k / 2 % 4][k % 2 * 4];
    part[0] = __fmaf_rn(w[0], x[k].x, part[0]);
    part[1] = __fmaf_rn(w[1], x[k].y, part[1]);
    part[2] = __fmaf_rn(w[2], x[k].z, part[2]);
    part[3] = __fmaf_rn(w[3], x[k].w, part[3]);
  }
  return (part[0] + part[1]) + (part[2] + part[3]);
}

// Adds up y of the block's rows from all lanes and warps, in a fixed order.
template <int M>
__device__ void store_sums(const WeightSideIo& io, const float (*sum)[kTiles * 2][M][32]) {
  for (int k = threadIdx.x; k < kTiles * 16 * M; k += kWarps * 32) {
    const int local = k % (kTiles * 16), v = k / (kTiles * 16);
    const int row = blockIdx.x * (kTiles * 16) + local;
    if (row >= io.rows || v >= io.m) continue;
    float total = io.bias != nullptr ? io.bias[row] : 0.0f;
    for (int warp = 0; warp < kWarps; ++warp) {
      const float* lanes = sum[warp][local / 8][v] + local % 8 * 4;
      total += (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    }
    float* out = io.y + v * io.ldy + row;
    *out = io.add ? *out + total : total;
  }
}

template <typename Decoder, int M>
__global__ void __launch_bounds__(kWarps * 32, 3)
    weight_vector_kernel(const __grid_constant__ PassView w,
                         const __grid_constant__ WeightSideIo io) {
  __shared__ float x[kWarps][M][kKTileColumns];
  __shared__ float sum[kWarps][kTiles * 2][M][32];
  __shared__ TileStage<Decoder> stages[kWarps][2];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = blockIdx.x * kTiles, tiles = min(kTiles, (io.rows + 15) / 16 - first);
  // Steps go through k-tiles, then tiles.
  const int steps = (w.k_tiles - warp + kWarps - 1) / kWarps * tiles;
  const auto load = [&](int k) {
    if (k < steps)
      load_stage(stages[warp][k % 2], w, first + k % tiles, warp + k / tiles * kWarps, lane);
    copy_commit();
  };
  load(0);
  for (int k = 0; k < kTiles * 2 * M; ++k)
    sum[warp][k / M][k % M][lane] = 0;
  KTileShape shape;
  float4 in[16];
#pragma unroll 1
  for (int k = 0; k < steps; ++k) {
    load(k + 1);
    if (k % tiles == 0) {
      const int k_tile = warp + k / tiles * kWarps;
      shape = k_tile_shape(k_tile, w);
      stage_inputs<M>(w, io, k_tile, lane, x[warp]);
      if constexpr (M == 1) lane_inputs(x[warp][0], lane % 4, in);
    }
    copy_wait<1>();
    __syncwarp();
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const TileStage<Decoder>& stage = stages[warp][k % 2];
      uint32_t levels[2][4][4];
      float value[2][4][8];
      decode_levels<Decoder>(w, stage, lane, half, levels);
      rotate_back(levels, stage, w, half, shape, lane, value);
      float(*to)[32] = sum[warp][k % tiles * 2 + half];
#pragma unroll 1
      for (int v = 0; v < (M == 1 ? 1 : io.m); ++v) {
        if constexpr (M > 1) lane_inputs(x[warp][v], lane % 4, in);
        to[v][lane] += dot(value, in);
      }
    }
    __syncwarp();  // The stage may be refilled.
  }
  __syncthreads();
  store_sums<M>(io, sum);
}

template <typename Decoder>
void launch_vector(const PassView& w, WeightSideIo io, Stream stream) {
  const int blocks = (io.rows + kTiles * 16 - 1) / (kTiles * 16);
  if (io.m == 1) {
    weight_vector_kernel<Decoder, 1><<<blocks, kWarps * 32, 0, stream>>>(w, io);
    check_launch("weight-side product");
    return;
  }
  for (int left = io.m; left > 0; left -= kVectors) {
    io.m = std::min(left, kVectors);
    weight_vector_kernel<Decoder, kVectors><<<blocks, kWarps * 32, 0, stream>>>(w, io);
    check_launch("weight-side product");
    io.x = static_cast<const float*>(io.x) + kVectors * io.ldx;
    io.y += kVectors * io.ldy;
  }
}

}  // namespace

void weight_side_vector(DecoderKind decoder, const PassView& w, const WeightSideIo& io,
                        Stream stream) {
  with_decoder(decoder, [&]<typename Decoder>() {
    if constexpr (Decoder::kVectors <= kWeightSideVectorsOfCodes && !Decoder::kTable &&
                  !kIsTrellis<Decoder>) {
      launch_vector<Decoder>(w, io, stream);
    } else {
      throw Error(ErrorCode::internal, "weight-side product", "no kernel for this code");
    }
  });
}

}  // namespace walsh::cuda::detail
