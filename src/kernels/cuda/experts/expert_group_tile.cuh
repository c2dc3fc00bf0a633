// Multiplies tiles of experts with Hopper's warp group instructions (wgmma).
//
// A block is one warp group with 128 rows of one expert's weights and up to 128 slots of an item.
// Two blocks share a multiprocessor, so that one multiplies while the other decodes and scales. A
// warp has two tiles of 16 rows, as in gemm/int8_tile.cuh. Codes become the same fragments, which
// are the operand in registers, and sums over 128 columns are scaled in the same way, so results
// have the same bits. The inputs are the operand in shared memory.
#pragma once

#include "kernels/cuda/experts/expert_tile.h"
#include "kernels/cuda/gemm/int8_tile_products.cuh"
#include "kernels/cuda/gemm/int8_tile_stage.cuh"
#include "kernels/cuda/int8_products.cuh"
#include "kernels/cuda/warp_group.cuh"

namespace walsh::cuda::detail {

template <typename Decoder>
struct GroupTile {
  static constexpr int kTokens = 128, kTiles = 8, kRows = kTiles * 16;
  // An expert's last item often has no more slots than this.
  static constexpr int kFewTokens = 32;
  static constexpr int kThreads = 128, kStages = 2;
  static constexpr int kAlignment = 1024;  // A swizzle pattern has this size.

  struct alignas(kAlignment) Stage {
    static constexpr int kTiles = GroupTile::kTiles, kTokens = GroupTile::kTokens, kSteps = 2;

    // Holds the inputs of both chunks of 128 columns. 16-byte units are permuted by the 128-byte
    // swizzle. Unit 2 i + h has the columns of half h of product i; word t of the unit belongs to
    // lane t of a quad.
    uint32_t q[2][kTokens][32];
    uint4 codes[kTiles][Decoder::kVectors][32];
    uint32_t scales[kTiles][kSteps][8];
    uint32_t offsets[kTiles][8];
    float x_scales[kSteps][kTokens];
    int sums[2][kTokens];
  };
  static constexpr size_t kSharedBytes = sizeof(Stage) * kStages + kAlignment;

  using Loads = TileLoads<Stage, Decoder, kThreads, true>;
  template <int Blocks>
  using Products = TileProducts<Decoder, false, Blocks, Stage>;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

  // Copies inputs from the order of Activations, where a lane's 32 bytes of a chunk are neighbours,
  // to the operand's order. A warp copies a chunk of four neighbouring vectors, and of every eighth
  // after them, at a time. 32 vectors are copied without a bounds check, repeating the last one if
  // there are fewer (list of InputRows).
  static __device__ __forceinline__ void load_inputs(Stage& stage, const TileInput& p,
                                                     const typename Loads::PlaneRows& row_of,
                                                     int left, int k_tile) {
    const int thread = static_cast<int>(threadIdx.x), cols = p.cols;
    const int word = thread % 32, c = thread / 32 % 2, first = thread / 64 * 4;
    const int at = operand_byte(4 * word), unit = at / 16, t = at % 16 / 4;
    const int8_t* from = p.q + row_of.plane * cols + k_tile * kKTileColumns + c * 128 + word * 4;
    // This forces a single register, so that an address is one multiply-add instruction.
    asm volatile("" : "+l"(from));
    uint32_t to[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to[i] = shared_address(&stage.q[c][first + i][(unit ^ (first + i)) * 4 + t]);
#pragma unroll
    for (int part = 0; part < kTokens; part += 32) {
      if (part >= left) break;
#pragma unroll
      for (int token = part; token < part + 32; token += 8) {
        const int4 four = *reinterpret_cast<const int4*>(row_of.rows.list + token + first);
        const int rows[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
          copy_word(to[i] + static_cast<uint32_t>(token) * 128,
                    from + static_cast<uint64_t>(static_cast<uint32_t>(rows[i])) *
                               static_cast<uint32_t>(cols));
      }
    }
  }

  static __device__ __forceinline__ void load(Stage& stage, const TileInput& p,
                                              InputRows<true> rows, int first_tile, int first_token,
                                              int m, int step) {
    const int k_tile = step / p.planes, left = m - first_token;
    const typename Loads::PlaneRows row_of{rows, first_token, p.planes, step - k_tile * p.planes};
    Loads::load_weights(stage, p, first_tile, k_tile);
    load_inputs(stage, p, row_of, left, k_tile);
    Loads::load_input_scales(stage, p, row_of, left, k_tile);
  }

  // Multiplies a tile with a chunk of `Blocks` blocks of 8 vectors, of which the first `used` are
  // needed.
  template <int C, int Blocks>
  static __device__ __forceinline__ void multiply_chunk(const Stage& stage, const TileInput& p,
                                                        int tile, int lane, int used,
                                                        float (&y)[Blocks][4]) {
    const int g = lane / 4, t = lane % 4;
    uint32_t a[4][4];
    Products<Blocks>::decode(stage, p.levels, tile, C, lane, a);
    int sum[Blocks][4];
    const uint32_t inputs = shared_address(&stage.q[C][0][0]);
    pin(a);
    wgmma_fence();
    multiply_int8<false>(sum, a[0], swizzled_operand(inputs));
#pragma unroll
    for (int i = 1; i < 4; ++i)
      multiply_int8<true>(sum, a[i], swizzled_operand(inputs + i * 32));
    wgmma_commit();
    const uint32_t pair = stage.scales[tile][C][g];
    const float scale[2] = {Products<Blocks>::scale_of(pair, 0),
                            Products<Blocks>::scale_of(pair, 1)};
    wgmma_wait<0>();
    pin(sum);
    pin(a);
#pragma unroll
    for (int first = 0; first < Blocks; first += Products<Blocks>::kRun) {
      if (first >= used) break;
#pragma unroll
      for (int n = first; n < first + Products<Blocks>::kRun; ++n) {
        const float2 xs = Products<Blocks>::input_scales(stage, C, n, t);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float product = __fmul_rn(__int2float_rn(sum[n][e]), scale[e / 2]);
          y[n][e] = __fmaf_rn(product, e % 2 ? xs.y : xs.x, y[n][e]);
        }
      }
    }
  }

  // Multiplies block `block` of the weights' rows with vectors [first_token, m), but with at most 8
  // Blocks of them.
  template <int Blocks>
  static __device__ __forceinline__ void multiply_blocks(const TileInput& p, InputRows<true> rows,
                                                         int block, int first_token, int m,
                                                         Stage* ring) {
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const int first_tile = block * kTiles, tile = warp * 2, used = (m - first_token + 7) / 8;
    float y[2][Blocks][4] = {};
    const int steps = p.cols / kKTileColumns * p.planes;
    load(ring[0], p, rows, first_tile, first_token, m, 0);
    copy_commit();
    for (int k = 0; k < steps; ++k) {
      copy_wait<0>();
      // This makes this thread's copies visible to the group's products.
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();  // This step has arrived, and all warps are done with the last one.
      if (k + 1 < steps) load(ring[(k + 1) % 2], p, rows, first_tile, first_token, m, k + 1);
      copy_commit();
      const Stage& stage = ring[k % 2];
#pragma unroll
      for (int mt = 0; mt < 2; ++mt) {
        multiply_chunk<0, Blocks>(stage, p, tile + mt, lane, used, y[mt]);
        multiply_chunk<1, Blocks>(stage, p, tile + mt, lane, used, y[mt]);
      }
      if (p.offsets != nullptr) Products<Blocks>::add_k_tile_offsets(stage, p, tile, lane, used, y);
    }
    Products<Blocks>::store(p, (first_tile + tile) * 16, first_token, m, lane, y);
  }

  // Multiplies at most kTokens vectors.
  static __device__ __forceinline__ void multiply(const TileInput& p, InputRows<true> rows,
                                                  int block, int first_token, int m, Stage* ring) {
    if (m - first_token <= kFewTokens) {
      multiply_blocks<kFewTokens / 8>(p, rows, block, first_token, m, ring);
    } else {
      multiply_blocks<kTokens / 8>(p, rows, block, first_token, m, ring);
    }
  }

#endif
};

}  // namespace walsh::cuda::detail
