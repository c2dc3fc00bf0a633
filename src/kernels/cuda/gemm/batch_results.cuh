// Ends a block of results of a batch: the block of the launch that comes last adds up the parts of
// all blocks in the order of their columns, and results are stored. Warps do so on their own.
#pragma once

#include "kernels/cuda/gemm/batch_fetch.cuh"
#include "kernels/cuda/warp_group.cuh"

namespace walsh::cuda::detail {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Holds a lane's sums. Of every 8 vectors it has those of rows g and g + 8 with vectors 2 t and 2 t
// + 1.
template <int Vectors>
using BatchSums = float[Vectors / 8][4];

// This many times 8 vectors, of this many parts, are on their way together, which bounds the
// registers that they take.
inline constexpr int kResultBlocks = 4;
inline constexpr int kPartsAtOnce = 4;

// Leaves this warp's part of a block of results where the last block finds it. Returns true in the
// last block, which then has the sum of all parts.
template <int Vectors, int Warps>
__device__ __forceinline__ bool add_batch_parts(const BatchLaunch& p, const BatchShare& share,
                                                const BatchPiece& piece, int warp,
                                                BatchSums<Vectors>& y) {
  constexpr int kBlocks = Vectors / 8;
  constexpr int64_t kWarp = kBlocks * 32, kPlace = Warps * kWarp;
  const int lane = static_cast<int>(threadIdx.x % 32), own = share.part();
  float4* parts = p.parts + piece.tile * share.parts * kPlace + warp * kWarp + lane;
#pragma unroll
  for (int i = 0; i < kBlocks; ++i)
    __stcg(parts + own * kPlace + i * 32, make_float4(y[i][0], y[i][1], y[i][2], y[i][3]));
  __syncwarp();
  int* arrived = p.arrived + piece.tile * Warps + warp;
  int last = 0;
  if (lane == 0) {
    last = count_arrival(arrived) == share.parts - 1;
    if (last) *arrived = 0;
  }
  if (!__shfl_sync(~0u, last, 0)) return false;
#pragma unroll
  for (int at = 0; at < kBlocks; at += kResultBlocks) {
    float sum[kResultBlocks][4] = {};
    for (int part = 0; part < share.parts; part += kPartsAtOnce) {
      float4 v[kPartsAtOnce][kResultBlocks] = {};
#pragma unroll
      for (int i = 0; i < kPartsAtOnce; ++i) {
#pragma unroll
        for (int n = 0; n < kResultBlocks; ++n)
          if (part + i < share.parts) v[i][n] = __ldcg(parts + (part + i) * kPlace + (at + n) * 32);
      }
#pragma unroll
      for (int i = 0; i < kPartsAtOnce; ++i) {
#pragma unroll
        for (int n = 0; n < kResultBlocks; ++n) {
          sum[n][0] += v[i][n].x, sum[n][1] += v[i][n].y;
          sum[n][2] += v[i][n].z, sum[n][3] += v[i][n].w;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kResultBlocks; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        y[at + n][e] = sum[n][e];
    }
  }
  return true;
}

// Says where a lane's results of two vectors go, and what they are multiplied by.
struct BatchRows {
  float* out;
  int64_t ldy;
  bool known[2];  // They are for rows g and g + 8.
  float unit[2], bias[2];

  __device__ __forceinline__ BatchRows(const BatchLaunch& p, const BatchMatrix& matrix, int row,
                                       int vector)
      : out(matrix.y + vector * matrix.ldy + row),
        ldy(matrix.ldy),
        known{row < matrix.rows, row + 8 < matrix.rows},
        unit{p.unit, p.unit},
        bias{} {
    if (matrix.row_factors != nullptr && known[0]) {
      const float2 factors =
          halves(matrix.row_factors[static_cast<int64_t>(row / 16) * 8 + threadIdx.x % 32 / 4]);
      unit[0] *= factors.x, unit[1] *= factors.y;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (matrix.bias != nullptr && known[half]) bias[half] = matrix.bias[row + 8 * half];
  }
  __device__ __forceinline__ float* at(int n, int e, int half) const {
    return out + (8 * n + e % 2) * ldy + 8 * half;
  }
};

// Stores results of kResultBlocks times 8 vectors from `vector` on; those of `y` begin there.
template <bool Add>
__device__ __forceinline__ void store_results(const BatchLaunch& p, const BatchRows& rows,
                                              int vector, const float (*y)[4]) {
  int m = p.m;
  asm volatile("" : "+r"(m));  // Comparisons with m stay here, and take no registers before.
  float before[kResultBlocks][4];
#pragma unroll
  for (int n = 0; n < kResultBlocks; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      before[n][e] = rows.bias[e / 2];
      if (Add && vector + 8 * n + e % 2 < m && rows.known[e / 2])
        before[n][e] += *rows.at(n, e, e / 2);
    }
  }
#pragma unroll
  for (int n = 0; n < kResultBlocks; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (vector + 8 * n + e % 2 >= m || !rows.known[e / 2]) continue;
      *rows.at(n, e, e / 2) = __fmaf_rn(y[n][e], rows.unit[e / 2], before[n][e]);
    }
  }
}

template <int Vectors, int Warps>
__device__ __forceinline__ void store_batch(const BatchLaunch& p, int tile, int warp,
                                            const BatchSums<Vectors>& y) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const BatchMatrix& matrix = batch_matrix_of(p, tile);
  const int block = tile / p.vector_blocks - matrix.first_block;
  const int row = (block * Warps + warp) * 16 + lane / 4;
  int vector = tile % p.vector_blocks * Vectors + 2 * (lane % 4);
  BatchRows rows(p, matrix, row, vector);
#pragma unroll
  for (int at = 0; at < Vectors / 8; at += kResultBlocks) {
    if (matrix.add) {
      store_results<true>(p, rows, vector, &y[at]);
    } else {
      store_results<false>(p, rows, vector, &y[at]);
    }
    vector += 8 * kResultBlocks;
    rows.out += 8 * kResultBlocks * rows.ldy;
  }
}

#endif

}  // namespace walsh::cuda::detail
