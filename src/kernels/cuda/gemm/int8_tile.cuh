// The tile kernel of int8_gemm: int8 tensor cores, weights decoded in registers.
//
// A block of WM * WK warps makes 32 WM rows by 8 NT vectors of y. A warp has 32 rows (two tiles of
// weights/matrix.h) and all vectors of the block; WK > 1 groups of WM warps take turns at the
// k-tiles of 256 columns and are summed at the end. Codes, inputs and their scales of a k-tile come
// by asynchronous copies, some stages ahead; codes become int8 fragments by byte permutes once per
// k-tile and serve all vectors. Accumulators start at 1.5 * 2^23 as bit patterns, so that integer
// sums below 2^22 are floats after one subtraction.
#pragma once

#include <cuda_fp16.h>

#include <algorithm>
#include <string_view>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemm/int8_tile.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/weights/code_decoder.cuh"

namespace walsh::cuda::detail {

inline constexpr int kMagic = 0x4B400000;  // 1.5 * 2^23 as float

// Bytes from global to shared memory, zeros instead when not `valid`.
template <int Bytes>
__device__ __forceinline__ void copy_or_zero(void* shared, const void* global, bool valid) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int size = valid ? Bytes : 0;
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
                 "r"(size)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(global),
                 "n"(Bytes), "r"(size)
                 : "memory");
  }
}

// Where the inputs of a block's vectors are: neighbours, or with `Grouped` rows of a list in shared
// memory, whose first one is that of the block's first vector.
template <bool Grouped>
struct InputRows {
  const int* list;

  __device__ __forceinline__ int64_t of(int64_t first_row, int token, const TileInput& p,
                                        int plane) const {
    if constexpr (Grouped) return static_cast<int64_t>(list[token]) * p.planes + plane;
    return first_row + token * p.planes;
  }
};

template <typename Decoder, bool Fine, int WM, int WK, int NT, bool Grouped = false>
struct TileKernel {
  static constexpr int kVectors = Decoder::kVectors;  // of codes
  static constexpr int kThreads = WM * WK * 32;
  static constexpr int kGroupThreads = WM * 32;  // those that share stages
  static constexpr int kRows = WM * 32, kTiles = WM * 2, kTokens = NT * 8;
  static constexpr int kSteps = Fine ? 8 : 2;  // scale steps of a k-tile: 32 or 128 columns

  // One step of a group of warps.
  struct Stage {
    uint4 codes[kTiles][kVectors][32];
    uint4 q[kTokens][16];  // 16-byte units permuted: unit u of vector v is at u ^ (v & 1)
    uint32_t scales[kTiles][kSteps][8];
    uint32_t offsets[kTiles][8];
    float x_scales[kSteps][kTokens];
    int sums[2][kTokens];
  };

  static size_t shared_bytes(int stages) {
    const size_t sums = static_cast<size_t>(WK - 1) * kRows * kTokens * sizeof(float);
    return std::max(sizeof(Stage) * WK * static_cast<size_t>(stages), sums);
  }

  // Codes, scales and offsets of the rows for one k-tile.
  static __device__ void load_weights(Stage& stage, const TileInput& p, int first_tile,
                                      int k_tile) {
    const int thread = threadIdx.x % kGroupThreads;
    const int k_tiles = p.cols / kKTileColumns;
#pragma unroll
    for (int k = thread; k < kTiles * kVectors * 32; k += kGroupThreads) {
      const int tile = min(first_tile + k / (kVectors * 32), p.tiles - 1);
      copy_async(shared_address(&stage.codes[0][0][0] + k),
                 p.codes + (static_cast<int64_t>(tile) * k_tiles + k_tile) * (kVectors * 32) +
                     k % (kVectors * 32));
    }
    for (int k = thread; k < kTiles * kSteps * 2; k += kGroupThreads) {
      const int tile = min(first_tile + k / (kSteps * 2), p.tiles - 1), s = k / 2 % kSteps;
      const int group = (k_tile * kKTileColumns + s * (kKTileColumns / kSteps)) >> p.group_shift;
      copy_async(shared_address(&stage.scales[0][0][0] + k * 4),
                 p.scales + (static_cast<int64_t>(tile) * p.groups + group) * 8 + k % 2 * 4);
    }
    if (p.offsets == nullptr) return;
    for (int k = thread; k < kTiles * 2; k += kGroupThreads) {
      const int tile = min(first_tile + k / 2, p.tiles - 1);
      const int group = (k_tile * kKTileColumns) >> p.offset_shift;
      copy_async(
          shared_address(&stage.offsets[0][0] + k * 4),
          p.offsets + (static_cast<int64_t>(tile) * p.offset_groups + group) * 8 + k % 2 * 4);
    }
  }

  // One plane of the vectors' columns of a k-tile, zero for vectors from m on.
  static __device__ void load_inputs(Stage& stage, const TileInput& p, InputRows<Grouped> rows,
                                     int first_token, int m, int k_tile, int plane) {
    const int thread = threadIdx.x % kGroupThreads;
    const int x_groups = p.cols >> p.x_shift, left = m - first_token;
    const int64_t first_row = static_cast<int64_t>(first_token) * p.planes + plane;
    // A thread keeps its unit and walks over the vectors.
    const int unit = thread % 16;
    constexpr int kStride = kGroupThreads / 16;
    if constexpr (Grouped) {
      const int8_t* from = p.q + k_tile * kKTileColumns + unit * 16;
#pragma unroll
      for (int token = thread / 16; token < kTokens; token += kStride) {
        const bool valid = token < left;
        const int64_t row = valid ? rows.of(first_row, token, p, plane) : 0;
        copy_or_zero<16>(&stage.q[token][unit ^ (token & 1)], from + row * p.cols, valid);
      }
    } else {
      const int8_t* from = p.q +
                           (first_row + static_cast<int64_t>(thread / 16) * p.planes) * p.cols +
                           k_tile * kKTileColumns + unit * 16;
      const int64_t step = static_cast<int64_t>(kStride) * p.planes * p.cols;
#pragma unroll
      for (int token = thread / 16; token < kTokens; token += kStride, from += step) {
        const bool valid = token < left;
        copy_or_zero<16>(&stage.q[token][unit ^ (token & 1)], valid ? from : p.q, valid);
      }
    }
    for (int k = thread; k < kTokens * kSteps; k += kGroupThreads) {
      const int token = k / kSteps, s = k % kSteps;
      const bool valid = token < left;
      const int group = (k_tile * kKTileColumns + s * (kKTileColumns / kSteps)) >> p.x_shift;
      const int64_t row = valid ? rows.of(first_row, token, p, plane) : 0;
      copy_or_zero<4>(&stage.x_scales[s][token], p.x_scales + row * x_groups + group, valid);
    }
    if constexpr (!Fine) {
      if (p.offsets != nullptr) load_sums(stage, p, rows, first_row, left, k_tile, plane);
    }
  }

  static __device__ void load_sums(Stage& stage, const TileInput& p, InputRows<Grouped> rows,
                                   int64_t first_row, int left, int k_tile, int plane) {
    for (int k = threadIdx.x % kGroupThreads; k < kTokens * 2; k += kGroupThreads) {
      const int token = k / 2, c = k % 2;
      const bool valid = token < left;
      const int64_t row = valid ? rows.of(first_row, token, p, plane) : 0;
      copy_or_zero<4>(&stage.sums[c][token], p.sums + row * (p.cols / 128) + 2 * k_tile + c, valid);
    }
  }

  static __device__ void load(Stage& stage, const TileInput& p, InputRows<Grouped> rows,
                              int first_tile, int first_token, int m, int step) {
    const int k_tile = step / p.planes;
    load_weights(stage, p, first_tile, k_tile);
    load_inputs(stage, p, rows, first_token, m, k_tile, step - k_tile * p.planes);
  }

  static __device__ __forceinline__ float scale_of(uint32_t pair, int half) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(half ? pair >> 16 : pair)));
  }

  // y += sum * (w_scale * x_scale) for the four values of a fragment.
  static __device__ __forceinline__ void add_scaled(float (&y)[4], const int (&sum)[4],
                                                    const float (&scale)[2], float2 x_scale) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float value = __int_as_float(sum[e]) - __int_as_float(kMagic);
      y[e] = __fmaf_rn(value, scale[e / 2] * (e % 2 ? x_scale.y : x_scale.x), y[e]);
    }
  }

  static __device__ void decode(const Stage& stage, const LevelTable& table, int tile, int c,
                                int lane, uint32_t (&a)[4][4]) {
    // A row of a chunk has kVectors words; those of chunk c lie in these vectors.
    constexpr int kFirst[2] = {0, 2 * kVectors / 4};
    constexpr int kCount = (2 * kVectors + 3) / 4;
    uint32_t words[4 * kCount];
#pragma unroll
    for (int v = 0; v < kCount; ++v) {
      const uint4 x = stage.codes[tile][kFirst[c] + v][lane];
      words[4 * v] = x.x, words[4 * v + 1] = x.y, words[4 * v + 2] = x.z, words[4 * v + 3] = x.w;
    }
    const int skip = c == 1 ? 2 * kVectors % 4 : 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Decoder::decode(words + skip, i, table, a[i][0], a[i][2]);
      Decoder::decode(words + skip + kVectors, i, table, a[i][1], a[i][3]);
    }
  }

  // Offsets of rows g and g + 8 of both tiles: one per k-tile.
  struct OffsetPairs {
    float value[2][2];
  };

  static __device__ __forceinline__ OffsetPairs load_offsets(const Stage& stage, int tile, int g) {
    OffsetPairs offset;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      offset.value[k / 2][k % 2] = scale_of(stage.offsets[tile + k / 2][g], k % 2);
    return offset;
  }

  static __device__ __forceinline__ void add_offsets(const OffsetPairs& offset,
                                                     const float (&total)[2], int n,
                                                     float (&y)[2][NT][4]) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      float& v = y[k / 4][n][k % 4];
      v = __fmaf_rn(offset.value[k / 4][k % 4 / 2], total[k % 2], v);
    }
  }

  // offset * sum of the inputs of a k-tile, from the stored sums over 128 columns.
  static __device__ __forceinline__ void add_k_tile_offsets(const Stage& stage, int tile, int lane,
                                                            int used, float (&y)[2][NT][4]) {
    const OffsetPairs offset = load_offsets(stage, tile, lane / 4);
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      if (n >= used) break;
      const int token = 8 * n + 2 * (lane % 4);
      float total[2] = {};
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float* xs = &stage.x_scales[c][token];
        total[0] = __fmaf_rn(static_cast<float>(stage.sums[c][token]), xs[0], total[0]);
        total[1] = __fmaf_rn(static_cast<float>(stage.sums[c][token + 1]), xs[1], total[1]);
      }
      add_offsets(offset, total, n, y);
    }
  }

  static constexpr int kScales = Fine ? 4 : 1;  // per chunk
  using Scales = float[2][kScales][2];          // of a lane's rows in both tiles

  // Both tiles by the blocks n and n + 1 of vectors; one scale per chunk.
  template <int C>
  static __device__ __forceinline__ void multiply_coarse(const Stage& stage,
                                                         const uint32_t (&a)[2][4][4],
                                                         const uint32_t (&b)[2][8],
                                                         const Scales& scale, int n, int t,
                                                         float (&y)[2][NT][4]) {
    const int start[4] = {kMagic, kMagic, kMagic, kMagic};
    int sum[2][2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        int(&d)[4] = sum[k / 2][k % 2];
        if (i == 0) {
          mma_int8(d, a[k % 2][i], b[k / 2][2 * i], b[k / 2][2 * i + 1], start);
        } else {
          mma_int8(d, a[k % 2][i], b[k / 2][2 * i], b[k / 2][2 * i + 1], d);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 xs =
          *reinterpret_cast<const float2*>(&stage.x_scales[C][8 * (n + k / 2) + 2 * t]);
      add_scaled(y[k % 2][n + k / 2], sum[k / 2][k % 2], scale[k % 2][0], xs);
    }
  }

  // The same with a scale per 32 columns, and sums of inputs over as many for the offsets: every
  // row of a product with ones is such a sum.
  template <int C>
  static __device__ __forceinline__ void multiply_fine(
      const Stage& stage, bool offsets, const uint32_t (&a)[2][4][4], const uint32_t (&b)[2][8],
      const Scales& scale, const OffsetPairs& offset, int n, int t, float (&y)[2][NT][4]) {
    const int start[4] = {kMagic, kMagic, kMagic, kMagic};
    constexpr uint32_t kOnes[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float2 xs =
            *reinterpret_cast<const float2*>(&stage.x_scales[4 * C + i][8 * (n + k) + 2 * t]);
        int sum[2][4];
#pragma unroll
        for (int mt = 0; mt < 2; ++mt) {
          mma_int8(sum[mt], a[mt][i], b[k][2 * i], b[k][2 * i + 1], start);
          add_scaled(y[mt][n + k], sum[mt], scale[mt][i], xs);
        }
        if (!offsets) continue;
        mma_int8(sum[0], kOnes, b[k][2 * i], b[k][2 * i + 1], start);
        const float total[2] = {(__int_as_float(sum[0][0]) - __int_as_float(kMagic)) * xs.x,
                                (__int_as_float(sum[0][1]) - __int_as_float(kMagic)) * xs.y};
        add_offsets(offset, total, n + k, y);
      }
    }
  }

  // The products of a chunk of 128 columns with the first `used` blocks of 8 vectors.
  template <int C>
  static __device__ __forceinline__ void multiply_chunk(const Stage& stage, const TileInput& p,
                                                        int tile, int lane, int used,
                                                        float (&y)[2][NT][4]) {
    const int g = lane / 4, t = lane % 4;
    const LevelTable table = p.levels;
    uint32_t a[2][4][4];
    Scales scale;
#pragma unroll
    for (int mt = 0; mt < 2; ++mt) {
      decode(stage, table, tile + mt, C, lane, a[mt]);
#pragma unroll
      for (int s = 0; s < kScales; ++s) {
        const uint32_t pair = stage.scales[tile + mt][C * kScales + s][g];
        scale[mt][s][0] = scale_of(pair, 0) * p.unit;
        scale[mt][s][1] = scale_of(pair, 1) * p.unit;
      }
    }
    const OffsetPairs offset = Fine ? load_offsets(stage, tile, g) : OffsetPairs();
    // Two blocks of 8 vectors at a time: four independent chains of products.
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
      if (n >= used) break;
      uint32_t b[2][8];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint4 units = stage.q[8 * (n + k / 2) + g][(8 * C + 2 * t + k % 2) ^ (g & 1)];
        uint32_t* to = b[k / 2] + 4 * (k % 2);
        to[0] = units.x, to[1] = units.y, to[2] = units.z, to[3] = units.w;
      }
      if constexpr (Fine) {
        multiply_fine<C>(stage, p.offsets != nullptr, a, b, scale, offset, n, t, y);
      } else {
        multiply_coarse<C>(stage, a, b, scale, n, t, y);
      }
    }
  }

  // Sums of the other groups of warps, in their order.
  static __device__ void join_groups(float* shared, int warp, int lane, float (&y)[2][NT][4]) {
    __syncthreads();  // all stages have been read
    const int group = warp / WM;
    constexpr int kValues = 8 * NT;
    const int mine = warp % WM * 32 + lane;
    if (group > 0) {
      float* out = shared + static_cast<int64_t>(group - 1) * kValues * kGroupThreads + mine;
#pragma unroll
      for (int k = 0; k < kValues; ++k)
        out[k * kGroupThreads] = y[k / (4 * NT)][k / 4 % NT][k % 4];
    }
    __syncthreads();
    if (group > 0) return;
    for (int other = 0; other < WK - 1; ++other) {
      const float* in = shared + static_cast<int64_t>(other) * kValues * kGroupThreads + mine;
#pragma unroll
      for (int k = 0; k < kValues; ++k)
        y[k / (4 * NT)][k / 4 % NT][k % 4] += in[k * kGroupThreads];
    }
  }

  static __device__ void store(const TileInput& p, int first_row, int first_token, int m, int lane,
                               const float (&y)[2][NT][4]) {
#pragma unroll
    for (int mt = 0; mt < 2; ++mt) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = first_row + 16 * mt + lane / 4 + 8 * (e / 2);
        if (row >= p.rows) continue;
        const float bias = p.bias != nullptr ? p.bias[row] : 0.0f;
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          const int token = first_token + 8 * n + 2 * (lane % 4) + e % 2;
          if (token >= m) continue;
          float* out = p.y + token * p.ldy + row;
          *out = (p.add ? *out + bias : bias) + y[mt][n][e];
        }
      }
    }
  }

  static __device__ void run(const TileLaunch& launch, int stages, unsigned char* shared) {
    int block = blockIdx.x / launch.token_blocks, which = 0;
    while (which + 1 < launch.count && block >= launch.input[which + 1].first_block)
      ++which;
    const TileInput& p = launch.input[which];
    multiply(p, {nullptr}, block - p.first_block, blockIdx.x % launch.token_blocks * kTokens,
             launch.m, stages, shared);
  }

  // Rows of block `block` of the weights by the vectors [first_token, m), kTokens of them at most.
  static __device__ __forceinline__ void multiply(const TileInput& p, InputRows<Grouped> rows,
                                                  int block, int first_token, int m, int stages,
                                                  unsigned char* shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / WM;
    const int first_tile = block * kTiles, tile = warp % WM * 2;
    Stage* ring = reinterpret_cast<Stage*>(shared) + group * stages;

    const int used = (m - first_token + 7) / 8;
    float y[2][NT][4] = {};
    const int steps = p.cols / kKTileColumns * p.planes;
    const int mine = steps / WK + (group < steps % WK ? 1 : 0);  // steps group, group + WK, ...
    const int rounds = (steps + WK - 1) / WK;                    // of all groups: they keep step
    for (int k = 0; k < stages - 1; ++k) {
      if (k < mine) load(ring[k], p, rows, first_tile, first_token, m, group + k * WK);
      copy_commit();
    }
    int slot = 0;
    for (int k = 0; k < rounds; ++k) {
      if (stages == 2) {
        copy_wait<0>();
      } else {
        copy_wait<1>();
      }
      __syncthreads();  // this step is there, and everybody is done with the one before
      const int next = k + stages - 1, free = slot == 0 ? stages - 1 : slot - 1;
      if (next < mine) {
        load(ring[free], p, rows, first_tile, first_token, m, group + next * WK);
      }
      copy_commit();
      if (k < mine) {
        const Stage& stage = ring[slot];
        multiply_chunk<0>(stage, p, tile, lane, used, y);
        multiply_chunk<1>(stage, p, tile, lane, used, y);
        if constexpr (!Fine) {
          if (p.offsets != nullptr) add_k_tile_offsets(stage, tile, lane, used, y);
        }
      }
      slot = slot + 1 == stages ? 0 : slot + 1;
    }
    if constexpr (WK > 1) {
      copy_wait<0>();
      join_groups(reinterpret_cast<float*>(shared), warp, lane, y);
      if (group > 0) return;
    }
    store(p, (first_tile + tile) * 16, first_token, m, lane, y);
  }
};

template <typename Decoder, bool Fine, int WM, int WK, int NT>
__global__ void __launch_bounds__(WM* WK * 32)
    int8_tile_kernel(const __grid_constant__ TileLaunch launch, int stages) {
  extern __shared__ __align__(16) unsigned char tile_shared[];
  wait_previous_kernel();
  TileKernel<Decoder, Fine, WM, WK, NT>::run(launch, stages, tile_shared);
}

// False if a block does not fit the device's shared memory.
template <typename Decoder, bool Fine, int WM, int WK, int NT>
bool launch_blocks(TileLaunch& work, Stream stream) {
  using Kernel = TileKernel<Decoder, Fine, WM, WK, NT>;
  constexpr int kMostStages = 3;
  const size_t limit = current_device().shared_bytes;
  int stages = kMostStages;
  while (stages > 1 && Kernel::shared_bytes(stages) > limit)
    --stages;
  if (stages < 2) return false;
  int blocks = 0;
  for (int k = 0; k < work.count; ++k) {
    work.input[k].first_block = blocks;
    blocks += (work.input[k].rows + Kernel::kRows - 1) / Kernel::kRows;
  }
  work.token_blocks = (work.m + Kernel::kTokens - 1) / Kernel::kTokens;
  cuda::launch("int8 gemm tile", int8_tile_kernel<Decoder, Fine, WM, WK, NT>,
               {dim3(static_cast<unsigned>(blocks * work.token_blocks)), dim3(Kernel::kThreads),
                Kernel::shared_bytes(stages)},
               stream, work, stages);
  return true;
}

// The block shapes that are compiled.
template <typename Decoder, bool Fine>
bool launch_tile(TileShape shape, TileLaunch& work, Stream stream) {
  switch (shape) {
    case TileShape::large:
      return launch_blocks<Decoder, Fine, 8, 1, 16>(work, stream);
    case TileShape::medium:
      return launch_blocks<Decoder, Fine, 2, 4, 8>(work, stream);
    case TileShape::small:
      return launch_blocks<Decoder, Fine, 2, 1, 8>(work, stream);
  }
  return false;
}

}  // namespace walsh::cuda::detail
