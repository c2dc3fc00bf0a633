// Multiplies coded weights with 17 to 256 vectors on GPUs with wgmma.
//
// A block has Groups warp groups of 64 rows each, up to Vectors vectors, and one more warp group
// that brings codes and inputs into shared memory. The warps of the others make f16 operands of the
// codes of 16 rows each in registers, scales included, once for all vectors of the block. So sums
// stay in registers from the first column to the last. The inputs are the operand in shared memory,
// as pack_batch() has laid them out. While the tensor cores multiply 64 columns, a warp makes
// operands of the next 64. There is no barrier of the block: barriers in shared memory say which
// stages are full and which have been read.
//
// All blocks compute the same number of blocks of results alone. The remaining ones are split along
// the columns (as in stream-K, Osama et al. 2023, but a block computes at most one part).
#pragma once

#include <algorithm>

#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/f16_products.cuh"
#include "kernels/cuda/gemm/batch_fetch.cuh"
#include "kernels/cuda/gemm/batch_results.cuh"
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
  using Fragments = uint32_t[kBatchProducts][4];
  // All warp groups begin with the same number of registers per thread, a multiple of eight. The
  // group that fetches keeps a few of them, and the others share the rest.
  static constexpr int kFirstRegisters = 65536 / batch_threads_bound(Vectors, Groups) / 8 * 8;
  static constexpr int kFetchRegisters = 32;
  static constexpr int kRegisters =
      (kFirstRegisters * (Groups + 1) - kFetchRegisters) / Groups / 8 * 8;

  static __device__ __forceinline__ void run(const BatchLaunch& p, unsigned char* shared) {
    const uint32_t start = (shared_address(shared) + 1023u) & ~1023u;
    const uint32_t behind = start + p.input_stages * Memory::kInputStage;
    const uint32_t barriers = behind + Memory::kCodeStages * Memory::kCodeStage;
    const Inputs inputs(start, barriers, p.input_stages);
    const Codes ring(behind, barriers + p.input_stages * 16, Memory::kCodeStages);
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
    const float offset_factor = p.offset_groups > 0 ? p.inverse_unit / kBatchLevelUnit : 0.0f;
    wait_previous_kernel();
    if (share.pieces == 0) return;
    BatchCodes<Decoder> codes;
    Fragments a[2] = {};
    // Loads the codes of the next step, or at the beginning those of the first.
    const auto load_codes = [&] {
      ring.wait_full();
      codes.load(ring.place() + warp * BatchCodes<Decoder>::kBytes, offset_factor);
      __syncwarp();
      release(ring.empty());
      ring.advance();
      Operands::template decode<0>(codes, table, a[0]);
    };
    load_codes();

    uint32_t read = 0;  // It is the barrier of the stage of inputs that is read.
    for (int index = 0; index < share.pieces; ++index) {
      const BatchPiece piece = share.piece(index);
      Sums y = {};
      for (int step = piece.begin; step < piece.end; ++step) {
        // Multiplies a chunk. The chunk before has been read then, and its operands are free.
        const auto chunk = [&]<int Chunk>(const Fragments& own, Fragments& other) {
          constexpr int kInStage = Chunk % Memory::kStageChunks;
          if (kInStage == 0) in.wait_full();
          start_products<kInStage>(own, in.place(), y);
          wgmma_wait<1>();
          pin(other);
          if (kInStage == 0) {
            if (Chunk > 0 || step > piece.begin) release(read);
            read = in.empty();
          }
          if (kInStage + 1 == Memory::kStageChunks) in.advance();
        };
        chunk.template operator()<0>(a[0], a[1]);
        Operands::template decode<1>(codes, table, a[1]);
        chunk.template operator()<1>(a[1], a[0]);
        Operands::template decode<2>(codes, table, a[0]);
        chunk.template operator()<2>(a[0], a[1]);
        Operands::template decode<3>(codes, table, a[1]);
        chunk.template operator()<3>(a[1], a[0]);
        if (step + 1 < piece.end) load_codes();
      }
      wgmma_wait<0>();
      pin(y);
      pin(a[1]);
      release(read);
      finish(p, share, piece, index < share.shared, y);
      if (index + 1 == share.pieces) return;
      // The end of a piece needs many registers, so nothing else is kept until here.
      clear(a[1]);
      load_codes();
    }
  }

  static __device__ __forceinline__ void clear(Fragments& a) {
#pragma unroll
    for (auto& product : a)
#pragma unroll
      for (uint32_t& word : product)
        word = 0;
  }

  // Multiplies a chunk of a stage of inputs.
  template <int Chunk>
  static __device__ __forceinline__ void start_products(const Fragments& a, uint32_t stage,
                                                        Sums& y) {
    const uint64_t first = swizzled_operand(stage);
    constexpr uint32_t kPlace = Chunk * batch_chunk_bytes(Vectors) / 16;
    wgmma_fence();
#pragma unroll
    for (uint32_t j = 0; j < kBatchProducts; ++j) {
      const uint32_t low = static_cast<uint32_t>(first) + (kPlace + 2 * j);
      multiply_f16(y, a[j], first >> 32 << 32 | low);
    }
    wgmma_commit();
  }

  // Says that this warp has read a stage.
  static __device__ __forceinline__ void release(uint32_t barrier) {
    if (threadIdx.x % 32 == 0) arrive_barrier(barrier);
  }

  static __device__ __forceinline__ void finish(const BatchLaunch& p, const BatchShare& share,
                                                const BatchPiece& piece, bool shared, Sums& y) {
    if (shared && share.parts > 1) {
      if (!add_batch_parts<Vectors, Groups>(p, share, piece, y)) return;
    }
    store_batch<Vectors, Groups>(p, piece.tile, y);
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

// Divides the matrices into blocks of rows. Returns no block if the device has too little shared
// memory.
template <typename Decoder, int Vectors, int Groups>
LaunchShape divide_batch(BatchLaunch& work) {
  using Memory = BatchMemory<Decoder, Vectors, Groups>;
  static_assert(Vectors * Groups * 64 <= kBatchValues && Groups <= kBatchMostGroups);
  constexpr int kRows = Groups * 64;
  work.input_stages = Memory::input_stages(current_device().shared_bytes);
  if (work.input_stages < Memory::kLeastInputStages) return {};
  work.row_blocks = 0;
  for (int k = 0; k < work.count; ++k) {
    work.matrix[k].first_block = work.row_blocks;
    work.row_blocks += (work.matrix[k].rows + kRows - 1) / kRows;
  }
  const int total = work.k_tiles * work.planes * work.row_blocks * work.vector_blocks;
  return {dim3(static_cast<unsigned>(std::min(current_device().multiprocessors, total))),
          dim3((Groups + 1) * 128), Memory::bytes(work.input_stages)};
}

template <typename Decoder, int Vectors, int Groups>
bool launch_batch_blocks(BatchLaunch* work, Stream stream) {
  using Memory = BatchMemory<Decoder, Vectors, Groups>;
  const auto kernel = batch_kernel<Decoder, Vectors, Groups>;
  if (current_device().major != 9 || !has_body(kernel)) return false;
  if (work == nullptr)
    return Memory::input_stages(current_device().shared_bytes) >= Memory::kLeastInputStages;
  const LaunchShape shape = divide_batch<Decoder, Vectors, Groups>(*work);
  if (shape.shared == 0) return false;
  cuda::launch("products of a batch", kernel, shape, stream, *work);
  return true;
}

template <typename Decoder>
bool launch_batch(BatchShape shape, BatchLaunch* launch, Stream stream) {
  const auto is = [&](int vectors, int groups) {
    return shape.vectors == vectors && shape.groups == groups;
  };
  if (is(32, 4)) return launch_batch_blocks<Decoder, 32, 4>(launch, stream);
  if (is(64, 4)) return launch_batch_blocks<Decoder, 64, 4>(launch, stream);
  if (is(64, 3)) return launch_batch_blocks<Decoder, 64, 3>(launch, stream);
  if (is(96, 3)) return launch_batch_blocks<Decoder, 96, 3>(launch, stream);
  if (is(128, 3)) return launch_batch_blocks<Decoder, 128, 3>(launch, stream);
  if (is(128, 2)) return launch_batch_blocks<Decoder, 128, 2>(launch, stream);
  if (is(256, 2)) return launch_batch_blocks<Decoder, 256, 2>(launch, stream);
  return false;
}

}  // namespace walsh::cuda::detail
