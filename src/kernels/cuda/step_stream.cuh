// The weights of a step's products as one stream per warp.
#pragma once

#include "kernels/cuda/step_phase.h"
#include "kernels/cuda/unit_product.cuh"

namespace walsh::cuda {

// The phases in shared memory: those up to `known`, from the one at work on.
struct PhaseQueue {
  StepPhase* slots;
  int known;

  __device__ const StepPhase& operator[](int phase) const { return slots[phase % kKnownPhases]; }
};

// The tiles of this block, and of them this warp's run.
__device__ __forceinline__ TileRound tiles_of_block(const MatvecArgs& args, int warp) {
  const int block = static_cast<int>(blockIdx.x);
  TileRound r;
  r.first = block * args.tiles_per_block + min(block, args.blocks_with_more);
  r.tiles = args.tiles_per_block + (block < args.blocks_with_more);
  r.units = args.units;
  r.share(warp, kStepWarps);
  return r;
}

// What a stream is while a phase without weights needs the registers.
struct ParkedStream {
  int fetch_slot, slot, ahead, phase, at;
};

// Units of all products in the order in which this warp needs them. The ring is filled as far ahead
// as phases are known.
template <int Bits, int Flush>
class WeightStream {
 public:
  using Unit = UnitProduct<Bits, Flush, 0>;
  static constexpr StepMemory kMemory = step_memory(Bits, Flush);
  static constexpr int kStages = kMemory.stages;

  __device__ WeightStream(std::byte* rings, int warp, int lane)
      : ring_(shared_address(rings) + warp * kStages * kMemory.stage_bytes),
        warp_(warp),
        lane_(lane) {}

  __device__ __forceinline__ void park(ParkedStream& to) const {
    if (lane_ == 0) to = {fetch_slot_, slot_, ahead_, phase_, at_ - left_};
  }

  __device__ __forceinline__ void resume(const ParkedStream& from, const PhaseQueue& phases) {
    fetch_slot_ = from.fetch_slot;
    slot_ = from.slot;
    ahead_ = from.ahead;
    phase_ = from.phase;
    left_ = at_ = end_ = tile_ = 0;
    codes_ = nullptr;  // so that nothing of these lives on through the other phase
    side_ = nullptr;
    side_place_ = side_step_ = 0;
    if (phase_ < 0 || phases[phase_].kind != StepKind::product) return;
    begin_run(phases);
    at_ = from.at;
  }

  // Asks for all units that there is room for.
  __device__ __forceinline__ void fill(const PhaseQueue& phases) {
#pragma unroll 1
    while (ahead_ < kStages && fetch(phases)) {
    }
  }

  // Waits for the oldest unit and says where it is.
  __device__ __forceinline__ uint32_t oldest() const {
    if (ahead_ == kStages) {
      copy_wait<kStages - 1>();
    } else {
      copy_wait<0>();
    }
    __syncwarp();
    return ring_ + slot_ * kMemory.stage_bytes;
  }

  // The oldest unit has been read: its place is for another one.
  __device__ __forceinline__ void replace_oldest(const PhaseQueue& phases) {
    --ahead_;
    if (++slot_ == kStages) slot_ = 0;
    fetch(phases);
  }

 private:
  __device__ __forceinline__ bool fetch(const PhaseQueue& phases) {
    if (left_ == 0 && !next_piece(phases)) return false;
    Unit::copy_unit(ring_ + fetch_slot_ * kMemory.stage_bytes, lane_, codes_, side_place_, side_);
    copy_commit();
    side_ += side_step_;
    codes_ += Unit::kVectors * 32;
    if (++fetch_slot_ == kStages) fetch_slot_ = 0;
    ++ahead_;
    --left_;
    return true;
  }

  __device__ __forceinline__ void begin_run(const PhaseQueue& phases) {
    const TileRound r = tiles_of_block(phases[phase_].matvec, warp_);
    at_ = r.begin;
    end_ = r.end;
    tile_ = r.first;
  }

  // Goes on to the units of the run whose codes and scales lie one after the other: to the end of
  // the matrix, or of the tile where rows have one scale. Then comes the next product.
  __device__ __forceinline__ bool next_piece(const PhaseQueue& phases) {
#pragma unroll 1
    while (at_ == end_) {
      if (phase_ + 1 >= phases.known) return false;
      ++phase_;
      if (phases[phase_].kind != StepKind::product) continue;
      begin_run(phases);
    }
    const MatvecArgs& args = phases[phase_].matvec;
    const int in_block = divide(at_, args.units), first_unit = at_ - in_block * args.units;
    const TileSet& set = set_of(args, tile_ + in_block);
    const int64_t tile = tile_ + in_block - set.first_tile;
    const int more = (set.rows + kTileRows - 1) / kTileRows - static_cast<int>(tile);
    const bool in_line = args.scale_step > 0 && (args.offset_vectors == 0 || args.offset_step > 0);
    const int last = in_block + (in_line ? more : 1);
    left_ = min(last * args.units, end_) - at_;
    at_ += left_;
    const typename Unit::Side side(args, lane_);
    codes_ = set.codes + (tile * args.units + first_unit) * (Unit::kVectors * 32) + lane_;
    side_ = side.begin(args, set, tile, first_unit, lane_);
    side_place_ = side.place;
    side_step_ = side.step;
    return true;
  }

  const uint32_t ring_;
  const int warp_, lane_;
  int fetch_slot_ = 0, slot_ = 0;
  int ahead_ = 0;  // units that are in the ring
  // What is fetched next: `left_` units of a tile, then units at_ to end_ of the run in `phase_`.
  int phase_ = -1, at_ = 0, end_ = 0, left_ = 0;
  int tile_ = 0;  // the block's first one
  const uint4* codes_ = nullptr;
  const std::byte* side_ = nullptr;
  int side_place_ = -1, side_step_ = 0;
};

}  // namespace walsh::cuda
