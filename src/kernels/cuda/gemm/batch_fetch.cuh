// Says how blocks of the kernels for batches share their work, and has the warps that bring codes
// and inputs into shared memory by bulk copies.
#pragma once

#include <algorithm>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/gemm/batch_operands.cuh"

namespace walsh::cuda::detail {

// Lays out a block's shared memory: stages of inputs, which have a step, stages of codes of all
// warps, and barriers.
template <typename Decoder, int Vectors, int Groups>
struct BatchMemory {
  static constexpr int kWarps = Groups * 4;  // These are the warps that multiply.
  // The swizzle repeats every KiB.
  static constexpr int kInputBytes = batch_stage_bytes(Vectors);
  static constexpr int kInputStage = (kInputBytes + 1023) / 1024 * 1024;
  static constexpr int kCodeStage = BatchCodes<Decoder>::kBytes * kWarps;
  // A block has at most 227 KiB from sm_90 on. More stages would only keep other blocks out.
  static constexpr int kLimit = (227 << 10) - 2048;
  static constexpr int kLeastInputStages = 3, kMostInputStages = Vectors > 64 ? 4 : 6;
  static constexpr int kCodeStages =
      std::min((kLimit - kLeastInputStages * kInputStage) / kCodeStage, 4);
  static constexpr int kInputStages =
      std::min((kLimit - kCodeStages * kCodeStage) / kInputStage, kMostInputStages);
  static_assert(kCodeStages > 1);
  static constexpr size_t kBytes = kInputStages * kInputStage + kCodeStages * kCodeStage +
                                   (kInputStages + kCodeStages) * 16 + 1024;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Says which steps of a block of results a block of the launch computes. A step is one plane of a
// k-tile.
struct BatchPiece {
  int tile;        // It is the number of the block of results.
  int begin, end;  // The piece is the steps [begin, end).
};

// Says how the blocks of a launch share the blocks of results. Every block of the launch computes
// the same number of them alone. The blocks of results that remain are divided into parts, and a
// block computes at most one part.
struct BatchShare {
  int steps;       // A block of results has this many steps.
  int rest;        // This many blocks of results are shared; they come first.
  int parts;       // Each of these has this many parts.
  int shared = 0;  // It is 1 if this block computes such a part.
  int pieces;      // This block has this many BatchPieces.

  __device__ explicit BatchShare(const BatchLaunch& p) : steps(p.k_tiles * p.planes) {
    const int tiles = p.row_blocks * p.vector_blocks, blocks = static_cast<int>(gridDim.x);
    const int whole = tiles / blocks;
    rest = tiles - whole * blocks;
    parts = rest > 0 ? min(blocks / rest, steps) : 1;
    if (static_cast<int>(blockIdx.x) < rest * parts) shared = 1;
    pieces = whole + shared;
  }
  // Returns which part of a shared block of results this block computes.
  __device__ __forceinline__ int part() const { return static_cast<int>(blockIdx.x) % parts; }
  __device__ __forceinline__ BatchPiece piece(int index) const {
    if (index >= shared) {
      const int tile = rest + (index - shared) * static_cast<int>(gridDim.x);
      return {tile + static_cast<int>(blockIdx.x), 0, steps};
    }
    return {static_cast<int>(blockIdx.x) / parts, steps * part() / parts,
            steps * (part() + 1) / parts};
  }
};

// Goes through the steps of this block, one after the other.
struct BatchSteps {
  const BatchShare& share;
  int index = 0;
  BatchPiece piece{};
  int step = 0;

  __device__ explicit BatchSteps(const BatchShare& s) : share(s) { enter(); }
  __device__ __forceinline__ bool ended() const { return index == share.pieces; }
  // Goes to the next step. Returns true if another piece begins there.
  __device__ __forceinline__ bool advance() {
    if (++step < piece.end) return false;
    ++index;
    enter();
    return true;
  }

 private:
  __device__ __forceinline__ void enter() {
    if (ended()) return;
    piece = share.piece(index);
    step = piece.begin;
  }
};

// Returns the product that a block of results belongs to.
__device__ __forceinline__ const BatchMatrix& batch_matrix_of(const BatchLaunch& p, int tile) {
  const int block = tile / p.vector_blocks;
  int which = 0;
  while (which + 1 < p.count && block >= p.matrix[which + 1].first_block)
    ++which;
  return p.matrix[which];
}

// Names the barriers of stages in shared memory, which some warps fill and others read in turn. A
// stage has two barriers: one says that it is full, the other that all warps have read it.
template <int Bytes>
struct StageRing {
  uint32_t stages, barriers;
  int count, slot = 0, parity = 0;

  __device__ __forceinline__ StageRing(uint32_t first, uint32_t barriers_at, int stages_count)
      : stages(first), barriers(barriers_at), count(stages_count) {}
  // Starts the barriers. One thread calls this before a barrier of the block.
  __device__ __forceinline__ void start(int writers, int readers) const {
    for (int k = 0; k < count; ++k) {
      start_barrier(barriers + k * 16, writers);
      start_barrier(barriers + k * 16 + 8, readers);
    }
  }
  __device__ __forceinline__ uint32_t place() const { return stages + slot * Bytes; }
  __device__ __forceinline__ uint32_t full() const { return barriers + slot * 16; }
  __device__ __forceinline__ uint32_t empty() const { return barriers + slot * 16 + 8; }
  __device__ __forceinline__ void wait_full() const { wait_barrier(full(), parity); }
  __device__ __forceinline__ void wait_empty() const { wait_barrier(empty(), parity ^ 1); }
  __device__ __forceinline__ void advance() {
    if (++slot == count) slot = 0, parity ^= 1;
  }
};

// A warp of this kind asks for the codes of one of the warp groups that multiply, and the first
// such warp asks for the inputs too. Lane i asks for the codes of the group's warp i. Lane 8 i + j
// copies 16 bytes of the scales and offsets of these, which are 32 bytes for 16 rows each: bulk
// copies of them would take longer than those of the codes, because a warp asks for one after the
// other.
template <typename Decoder, typename Memory>
struct BatchFetch {
  using Inputs = StageRing<Memory::kInputStage>;
  using Codes = StageRing<Memory::kCodeStage>;
  static constexpr int kCodeBytes = Decoder::kWords * 128, kSideBytes = 32;
  static constexpr int kArrivals = 33;  // of a warp at a stage of codes: its lanes, and lane 0

  const BatchLaunch& p;
  Codes ring;
  int group;
  BatchSteps at;              // It is the step whose codes are asked for next.
  int column = 0, plane = 0;  // They name the part of the step.
  const uint4* codes = nullptr;
  const std::byte* side = nullptr;  // scales or offsets
  int side_column = 0, side_shift = 0;

  static __device__ __forceinline__ void run(const BatchLaunch& p, const BatchShare& share,
                                             Inputs inputs, const Codes& ring, int group) {
    BatchFetch fetch(p, share, ring, group);
    for (int k = 0; k < Memory::kCodeStages; ++k)
      fetch.next();
    if (group > 0) {
      while (!fetch.at.ended())
        fetch.next();
      return;
    }
    wait_previous_kernel();
    const bool asks = threadIdx.x % 32 == 0;
    const std::byte* from = nullptr;
    for (BatchSteps of(share); !of.ended(); of.advance()) {
      if (of.step == of.piece.begin) {
        const int64_t block = of.piece.tile % p.vector_blocks;
        from = p.inputs + (block * share.steps + of.step) * Memory::kInputBytes;
      }
      inputs.wait_empty();
      if (asks) {
        arrive_expecting(inputs.full(), Memory::kInputBytes);
        copy_bulk(inputs.place(), from, Memory::kInputBytes, inputs.full());
      }
      inputs.advance();
      from += Memory::kInputBytes;
      fetch.next();
    }
  }

 private:
  __device__ __forceinline__ BatchFetch(const BatchLaunch& launch, const BatchShare& share,
                                        const Codes& stages, int own_group)
      : p(launch), ring(stages), group(own_group), at(share) {
    if (!at.ended()) find();
  }

  // Returns the warp that a lane asks for codes for, and the one that it copies scales for.
  __device__ __forceinline__ int warp() const {
    return group * 4 + static_cast<int>(threadIdx.x % 4);
  }
  __device__ __forceinline__ int side_warp() const {
    return group * 4 + static_cast<int>(threadIdx.x % 32 / 8);
  }
  static __device__ __forceinline__ int side_unit() { return static_cast<int>(threadIdx.x % 8); }

  __device__ __forceinline__ void find() {
    const BatchMatrix& matrix = batch_matrix_of(p, at.piece.tile);
    const int block = at.piece.tile / p.vector_blocks - matrix.first_block;
    const int first = block * Memory::kWarps, last = matrix.tiles - 1;
    const int k_tile = at.step / p.planes;
    column = k_tile * kKTileColumns, plane = at.step - k_tile * p.planes;
    codes = matrix.codes +
            (int64_t{min(first + warp(), last)} * p.k_tiles + k_tile) * (kCodeBytes / 16);
    // Units are scales of the first 128 columns, those of the others, and offsets, two of each.
    const bool offset = side_unit() >= 4;
    const int64_t groups = offset ? p.offset_groups : p.groups;
    side = reinterpret_cast<const std::byte*>(offset ? matrix.offsets : matrix.scales) +
           min(first + side_warp(), last) * groups * kSideBytes + side_unit() % 2 * 16;
    side_column = side_unit() / 2 == 1 ? kChunkColumns : 0;
    side_shift = offset ? p.offset_shift : p.group_shift;
  }

  // Asks for the codes of one more step, if there is one.
  __device__ __forceinline__ void next() {
    if (at.ended()) return;
    ring.wait_empty();
    using Stage = BatchCodes<Decoder>;
    if (threadIdx.x % 32 < 4) {
      if (threadIdx.x % 32 == 0) arrive_expecting(ring.full(), 4 * kCodeBytes);
      copy_bulk(ring.place() + warp() * Stage::kBytes, codes, kCodeBytes, ring.full());
    }
    if (side_unit() < (p.offset_groups > 0 ? 6 : 4)) {
      copy_async(ring.place() + side_warp() * Stage::kBytes + Stage::kSideAt + side_unit() * 16,
                 side + ((column + side_column) >> side_shift) * kSideBytes);
    }
    arrive_when_copied(ring.full());
    __syncwarp();
    ring.advance();
    if (at.advance()) {
      if (!at.ended()) find();
    } else if (++plane == p.planes) {
      plane = 0, column += kKTileColumns;
      codes += kCodeBytes / 16;
    }
  }
};

#endif

}  // namespace walsh::cuda::detail
