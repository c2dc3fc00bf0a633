// Multiplies coded weights with 17 to 256 vectors on GPUs with wgmma.
//
// A block has Groups warp groups of 64 rows each, up to Vectors vectors, and one more warp group
// that brings codes and inputs into shared memory. The warps of the others make int8 operands of
// the codes of 16 rows each in registers, once for all vectors of the block. The inputs are the
// operand in shared memory, as pack_batch() has laid them out. While the tensor cores multiply 128
// columns, a warp makes operands of the next 128. The integer sums of these columns begin with the
// bits of a float, so that two FMAs multiply a sum with the scales of input and row and add it to
// the result. There is no barrier of the block: barriers in shared memory say which stages are full
// and which have been read.
//
// All blocks compute the same number of blocks of results alone. The remaining ones are split along
// the columns (as in stream-K, Osama et al. 2023, but a block computes at most one part).
#pragma once

#include <algorithm>

#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/gemm/batch_fetch.cuh"
#include "kernels/cuda/gemm/batch_results.cuh"
#include "kernels/cuda/gemm/batch_values.cuh"
#include "kernels/cuda/int8_products.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/warp_group.cuh"

namespace walsh::cuda::detail {

// Returns the number of threads that the compiler assumes, a multiple of 128. It is larger than a
// block if blocks of other kernels are to have room.
constexpr int batch_threads_bound(int vectors, int groups) {
  return (groups + (has_room_beside({vectors, groups}) ? 2 : 1)) * 128;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <typename Decoder, int Vectors, int Groups>
struct BatchTile {
  using Memory = BatchMemory<Decoder, Vectors, Groups>;
  using Operands = BatchOperands<Decoder>;
  using Sums = BatchSums<Vectors>;
  using Inputs = StageRing<Memory::kInputStage>;
  using Codes = StageRing<Memory::kCodeStage>;
  using Fetch = BatchFetch<Decoder, Memory>;
  static constexpr int kBlocks = Vectors / 8;
  using IntegerSums = int[kBlocks][4];
  // All warp groups begin with the same number of registers per thread, a multiple of eight. The
  // group that fetches keeps a few of them, and the others share the rest.
  static constexpr int kFirstRegisters = 65536 / batch_threads_bound(Vectors, Groups) / 8 * 8;
  static constexpr int kFetchRegisters = 32;
  static constexpr int kRegisters =
      (kFirstRegisters * (Groups + 1) - kFetchRegisters) / Groups / 8 * 8;

  static __device__ __forceinline__ void run(const BatchLaunch& p, unsigned char* shared) {
    const uint32_t start = (shared_address(shared) + 1023u) & ~1023u;
    const uint32_t behind = start + Memory::kInputStages * Memory::kInputStage;
    const uint32_t barriers = behind + Memory::kCodeStages * Memory::kCodeStage;
    const Inputs inputs(start, barriers, Memory::kInputStages);
    const Codes ring(behind, barriers + Memory::kInputStages * 16, Memory::kCodeStages);
    if (threadIdx.x == 0) {
      inputs.start(1, Memory::kWarps);
      ring.start(Fetch::kArrivals * Groups, Memory::kWarps);
      show_barriers();
    }
    __syncthreads();
    allow_next_kernel();
    const BatchShare share(p);
    // The compiler has to see that all lanes of a warp take the same branch.
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);
    if (warp >= Memory::kWarps) {
      give_registers<kFetchRegisters>();
      const int group = warp - Memory::kWarps;
      if (group < Groups) Fetch::run(p, share, inputs, ring, group);
    } else {
      take_registers<kRegisters>();
      multiply(p, share, inputs, ring, warp);
    }
  }

  static __device__ __forceinline__ void multiply(const BatchLaunch& p, const BatchShare& share,
                                                  Inputs in, Codes ring, int warp) {
    const LevelTable table = Operands::table(p.levels);
    const bool offsets = p.offset_groups > 0;
    wait_previous_kernel();
    if (share.pieces == 0) return;
    BatchCodes<Decoder> codes;
    BatchOperand a[2] = {};
    // Loads the codes of the next step, or at the beginning those of the first.
    const auto load_codes = [&] {
      ring.wait_full();
      codes.load(ring.place() + warp * BatchCodes<Decoder>::kBytes, offsets);
      __syncwarp();
      release(ring.empty());
      ring.advance();
      Operands::template decode<0>(codes, table, a[0]);
    };
    load_codes();

    for (int index = 0; index < share.pieces; ++index) {
      const BatchPiece piece = share.piece(index);
      Sums y = {};
      IntegerSums sum;
      clear(sum);
      for (int step = piece.begin; step < piece.end; ++step) {
        in.wait_full();
        start_products<0>(a[0], in.place(), sum);
        Operands::template decode<1>(codes, table, a[1]);
        const float2 first = codes.scale[0], second = codes.scale[1], offset = codes.offset;
        end_products(a[0], sum);
        add_sums<0>(in.place(), first, sum, y);
        start_products<1>(a[1], in.place(), sum);
        if (step + 1 < piece.end) load_codes();
        end_products(a[1], sum);
        add_sums<1>(in.place(), second, sum, y);
        if (offsets)
          add_offsets(in.place(), offset.x * p.inverse_unit, offset.y * p.inverse_unit, y);
        __syncwarp();
        release(in.empty());
        in.advance();
      }
      if (index >= share.shared || share.parts == 1 ||
          add_batch_parts<Vectors, Memory::kWarps>(p, share, piece, warp, y))
        store_batch<Vectors, Memory::kWarps>(p, piece.tile, warp, y);
      if (index + 1 < share.pieces) load_codes();
    }
  }

  static __device__ __forceinline__ void clear(IntegerSums& sum) {
#pragma unroll
    for (auto& block : sum)
#pragma unroll
      for (int& value : block)
        value = kSumBias;
  }

  // Multiplies a group of 128 columns of a stage of inputs.
  template <int Group>
  static __device__ __forceinline__ void start_products(const BatchOperand& a, uint32_t stage,
                                                        IntegerSums& sum) {
    const uint64_t first = swizzled_operand(stage);
    constexpr uint32_t kPlace = Group * Vectors * kChunkColumns / 16;
    pin(sum);
    wgmma_fence();
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
      multiply_int8<true>(sum, a[i],
                          first >> 32 << 32 | (static_cast<uint32_t>(first) + kPlace + 2 * i));
    wgmma_commit();
  }

  static __device__ __forceinline__ void end_products(BatchOperand& a, IntegerSums& sum) {
    wgmma_wait<0>();
    pin(sum);
    pin(a);
  }

  // Says that this warp has read a stage.
  static __device__ __forceinline__ void release(uint32_t barrier) {
    if (threadIdx.x % 32 == 0) arrive_barrier(barrier);
  }

  // Adds the sums of a group of columns, times the scales of inputs and rows, and clears them.
  template <int Group>
  static __device__ __forceinline__ void add_sums(uint32_t stage, float2 scale, IntegerSums& sum,
                                                  Sums& y) {
    const uint32_t scales =
        stage + batch_scales_at(Vectors) + Group * Vectors * 8 + threadIdx.x % 4 * 16;
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      const float4 x = shared_float4(scales + n * 64);
      y[n][0] = __fmaf_rn(__fmaf_rn(__int_as_float(sum[n][0]), x.x, x.y), scale.x, y[n][0]);
      y[n][1] = __fmaf_rn(__fmaf_rn(__int_as_float(sum[n][1]), x.z, x.w), scale.x, y[n][1]);
      y[n][2] = __fmaf_rn(__fmaf_rn(__int_as_float(sum[n][2]), x.x, x.y), scale.y, y[n][2]);
      y[n][3] = __fmaf_rn(__fmaf_rn(__int_as_float(sum[n][3]), x.z, x.w), scale.y, y[n][3]);
    }
    clear(sum);
  }

  // Adds offsets times the sums of the inputs of a k-tile.
  static __device__ __forceinline__ void add_offsets(uint32_t stage, float upper, float lower,
                                                     Sums& y) {
    const uint32_t sums = stage + batch_sums_at(Vectors) + threadIdx.x % 4 * 8;
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      const float2 x = shared_float2(sums + n * 32);
      y[n][0] = __fmaf_rn(upper, x.x, y[n][0]);
      y[n][1] = __fmaf_rn(upper, x.y, y[n][1]);
      y[n][2] = __fmaf_rn(lower, x.x, y[n][2]);
      y[n][3] = __fmaf_rn(lower, x.y, y[n][3]);
    }
  }
};

#endif

template <typename Decoder, int Vectors, int Groups>
__global__ void __launch_bounds__(batch_threads_bound(Vectors, Groups), 1)
    batch_kernel(const __grid_constant__ BatchLaunch launch) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  WALSH_DYNAMIC_SHARED(unsigned char, memory);
  BatchTile<Decoder, Vectors, Groups>::run(launch, memory);
#endif
}

// Divides the matrices into blocks of rows.
template <typename Decoder, int Vectors, int Groups>
LaunchShape divide_batch(BatchLaunch& work) {
  static_assert(Vectors * Groups * 64 <= kBatchValues && Groups <= kBatchMostGroups);
  constexpr int kRows = Groups * 64;
  work.row_blocks = 0;
  for (int k = 0; k < work.count; ++k) {
    work.matrix[k].first_block = work.row_blocks;
    work.row_blocks += (work.matrix[k].rows + kRows - 1) / kRows;
  }
  const int total = work.k_tiles * work.planes * work.row_blocks * work.vector_blocks;
  return {dim3(static_cast<unsigned>(std::min(current_device().multiprocessors, total))),
          dim3((Groups + 1) * 128), BatchMemory<Decoder, Vectors, Groups>::kBytes};
}

template <typename Decoder, int Vectors, int Groups>
bool launch_batch_blocks(BatchLaunch* work, Stream stream) {
  const auto kernel = batch_kernel<Decoder, Vectors, Groups>;
  if (current_device().major != 9 || !has_body(kernel)) return false;
  if (work == nullptr) return true;
  const LaunchShape shape = divide_batch<Decoder, Vectors, Groups>(*work);
  cuda::launch("products of a batch", kernel, shape, stream, *work);
  return true;
}

template <typename Decoder>
bool launch_batch(BatchShape shape, BatchLaunch* launch, Stream stream) {
  const auto is = [&](int vectors, int groups) {
    return shape.vectors == vectors && shape.groups == groups;
  };
  if (is(32, 2)) return launch_batch_blocks<Decoder, 32, 2>(launch, stream);
  if (is(32, 3)) return launch_batch_blocks<Decoder, 32, 3>(launch, stream);
  if (is(64, 2)) return launch_batch_blocks<Decoder, 64, 2>(launch, stream);
  if (is(64, 3)) return launch_batch_blocks<Decoder, 64, 3>(launch, stream);
  if (is(96, 3)) return launch_batch_blocks<Decoder, 96, 3>(launch, stream);
  if (is(128, 2)) return launch_batch_blocks<Decoder, 128, 2>(launch, stream);
  return false;
}

}  // namespace walsh::cuda::detail
