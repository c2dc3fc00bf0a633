// Ends a block of results of a batch: the block of the launch that comes last adds up the parts of
// all blocks in the order of their columns, and results are stored.
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
template <int Vectors>
inline constexpr int kResultBlocks = Vectors > 32 ? 4 : 2;
inline constexpr int kPartsAtOnce = 4;

// Counts the arrival of this warp group at a block of results, behind its stores and before its
// loads. Returns true for the last one.
template <int Groups>
__device__ __forceinline__ bool arrives_last(int* arrived, int count) {
  __shared__ int last[Groups];
  const int group = static_cast<int>(threadIdx.x / 128);
  sync_group(group + 1);
  if (threadIdx.x % 128 == 0) {
    const bool is_last = count_arrival(arrived) == count - 1;
    if (is_last) *arrived = 0;
    last[group] = is_last;
  }
  sync_group(group + 1);
  return last[group];
}

// Leaves this part of a block of results where the last block finds it. Returns true in the last
// block, which then has the sum of all parts.
template <int Vectors, int Groups>
__device__ __forceinline__ bool add_batch_parts(const BatchLaunch& p, const BatchShare& share,
                                                const BatchPiece& piece, BatchSums<Vectors>& y) {
  constexpr int kBlocks = Vectors / 8, kAtOnce = kResultBlocks<Vectors>;
  constexpr int64_t kPlace = kBatchValues / 4;
  const int group = static_cast<int>(threadIdx.x / 128);
  float4* parts = p.parts + static_cast<int64_t>(piece.tile) * share.parts * kPlace +
                  group * (kBlocks * 128) + static_cast<int>(threadIdx.x % 128);
  const int own = share.part();
#pragma unroll
  for (int n = 0; n < kBlocks; ++n)
    __stcg(parts + own * kPlace + n * 128, make_float4(y[n][0], y[n][1], y[n][2], y[n][3]));
  if (!arrives_last<Groups>(p.arrived + piece.tile * Groups + group, share.parts)) return false;
#pragma unroll
  for (int at = 0; at < kBlocks; at += kAtOnce) {
    float sum[kAtOnce][4] = {};
    for (int part = 0; part < share.parts; part += kPartsAtOnce) {
      float4 v[kPartsAtOnce][kAtOnce] = {};
#pragma unroll
      for (int i = 0; i < kPartsAtOnce; ++i) {
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n)
          if (part + i < share.parts)
            v[i][n] = __ldcg(parts + (part + i) * kPlace + (at + n) * 128);
      }
#pragma unroll
      for (int i = 0; i < kPartsAtOnce; ++i) {
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
          sum[n][0] += v[i][n].x, sum[n][1] += v[i][n].y;
          sum[n][2] += v[i][n].z, sum[n][3] += v[i][n].w;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
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
        unit{p.unit * kBatchLevelUnit, p.unit * kBatchLevelUnit},
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

// Stores results of `Blocks` times 8 vectors from `vector` on; those of `y` begin there.
template <bool Add, int Blocks>
__device__ __forceinline__ void store_results(const BatchLaunch& p, const BatchRows& rows,
                                              int vector, const float (*y)[4]) {
  int m = p.m;
  asm volatile("" : "+r"(m));  // Comparisons with m stay here, and take no registers before.
  float2 scale[Blocks];
  float before[Blocks][4];
#pragma unroll
  for (int n = 0; n < Blocks; ++n) {
    scale[n] = __ldg(reinterpret_cast<const float2*>(p.vector_scales + vector + 8 * n));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      before[n][e] = rows.bias[e / 2];
      if (Add && vector + 8 * n + e % 2 < m && rows.known[e / 2])
        before[n][e] += *rows.at(n, e, e / 2);
    }
  }
#pragma unroll
  for (int n = 0; n < Blocks; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (vector + 8 * n + e % 2 >= m || !rows.known[e / 2]) continue;
      const float factor = (e % 2 ? scale[n].y : scale[n].x) * rows.unit[e / 2];
      *rows.at(n, e, e / 2) = __fmaf_rn(y[n][e], factor, before[n][e]);
    }
  }
}

template <int Vectors, int Groups>
__device__ __forceinline__ void store_batch(const BatchLaunch& p, int tile,
                                            const BatchSums<Vectors>& y) {
  constexpr int kAtOnce = kResultBlocks<Vectors>;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const BatchMatrix& matrix = batch_matrix_of(p, tile);
  const int block = tile / p.vector_blocks - matrix.first_block;
  const int row = block * Groups * 64 + warp * 16 + lane / 4;
  int vector = tile % p.vector_blocks * Vectors + 2 * (lane % 4);
  BatchRows rows(p, matrix, row, vector);
#pragma unroll
  for (int at = 0; at < Vectors / 8; at += kAtOnce) {
    if (matrix.add) {
      store_results<true, kAtOnce>(p, rows, vector, &y[at]);
    } else {
      store_results<false, kAtOnce>(p, rows, vector, &y[at]);
    }
    vector += 8 * kAtOnce;
    rows.out += 8 * kAtOnce * rows.ldy;
  }
}

#endif

}  // namespace walsh::cuda::detail
