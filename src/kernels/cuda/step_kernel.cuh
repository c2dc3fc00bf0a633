// The kernel of a whole step (step.h).
#pragma once

#include "kernels/cuda/step_attention.cuh"
#include "kernels/cuda/step_inputs.cuh"
#include "kernels/cuda/step_stream.cuh"

namespace walsh::cuda {

// Not inlined: with the registers of a tile, those of the weights would be spilled everywhere.
template <int Dim>
__device__ __noinline__ void attend_phase(const StepAttention& args, std::byte* memory,
                                          StepBits bits) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  StepAttend<Dim>(args, memory, bits, warp, lane).run();
}

// Rings of weights, inputs, sums of products, phases (StepMemory, StepArgs).
extern __shared__ __align__(128) std::byte step_shared[];
__shared__ uint32_t step_epoch;

template <int Bits, int Flush>
class Step {
 public:
  using Unit = UnitProduct<Bits, Flush, 0>;
  using Stream = WeightStream<Bits, Flush>;

  __device__ explicit Step(const StepArgs& args)
      : args_(args),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(static_cast<int>(threadIdx.x / 32)),
        stream_(step_shared, warp_, lane_) {}

  __device__ __forceinline__ void run() {
    known_ = min(args_.count, kKnownPhases - 1);
    if (warp_ < known_) load_phase(warp_);
    __syncthreads();
    stream_.fill(phases());
    wait_previous_kernel();
    if (threadIdx.x == 0) step_epoch = args_.left[1];
    if (args_.position) load_row();
    __syncthreads();
#pragma unroll 1
    for (phase_ = 0; phase_ < args_.count; ++phase_) {
      const StepPhase& p = phases()[phase_];
      if (p.kind == StepKind::product) {
        multiply(p);
        replace_phases();
      } else if (p.kind == StepKind::inputs) {
        make_shared_inputs(p, step_epoch, warp_, lane_);
      } else {
        attend(p);
      }
      __syncthreads();
      if (p.kind == StepKind::product) known_ = min(args_.count, phase_ + kKnownPhases);
    }
    allow_next_kernel();
    if (threadIdx.x == 0) leave();
  }

 private:
  __device__ __forceinline__ std::byte* inputs() const {
    return step_shared + Stream::kMemory.ring_bytes();
  }
  __device__ __forceinline__ float* sums() const {
    return reinterpret_cast<float*>(inputs() + args_.input_bytes);
  }
  __device__ __forceinline__ PhaseQueue phases() const {
    auto* slots = reinterpret_cast<StepPhase*>(inputs() + args_.input_bytes + args_.sum_bytes);
    return {slots, reinterpret_cast<StepPieces*>(slots + kKnownPhases), known_};
  }

  __device__ __forceinline__ void load_row() const {
    const int32_t* pages = args_.pages + *args_.sequence * args_.pages_per_sequence;
    const auto i = static_cast<int>(threadIdx.x);
    if (i == 0) {
      step_row.position = *args_.position;
      step_row.pages = pages;
    }
    if (i < min(int64_t{kStepPages}, args_.pages_per_sequence)) step_row.first_pages[i] = pages[i];
  }

  // By one warp.
  __device__ void load_phase(int phase) {
    const auto* from = reinterpret_cast<const uint4*>(args_.phases + phase);
    auto* to = reinterpret_cast<uint4*>(phases().slots + phase % kKnownPhases);
    for (int i = lane_; i < static_cast<int>(sizeof(StepPhase) / sizeof(uint4)); i += 32)
      to[i] = from[i];
    __syncwarp();
    if (lane_ < kStepWarps)
      find_pieces(phases()[phase], lane_, phases().pieces[phase % kKnownPhases].piece[lane_]);
  }

  // The phases before, which all have left, make room for others, which count as known from the
  // next phase on. Done at the end of a product by the last warps, when others write its results.
  __device__ __forceinline__ void replace_phases() {
    const int next = known_ + kStepWarps - 1 - warp_;
    if (next < min(args_.count, phase_ + kKnownPhases)) load_phase(next);
  }

  // The last block begins a new epoch.
  __device__ void leave() const {
    if (atomicAdd(args_.left, 1u) != gridDim.x - 1) return;
    args_.left[0] = 0;
    args_.left[1] = step_epoch + 1;
  }

  // A value that is not to be computed again and again, in a loop without a register to spare.
  template <typename T>
  static __device__ __forceinline__ T kept(T value) {
    asm volatile("" : "+r"(value));
    return value;
  }

  // What the product of a unit reads of its arguments, and where a warp begins, in registers.
  struct Run {
    float unit;
    int scale_shift, x_shift, offset_vectors;
    uint32_t side;  // from a lane's codes to its scales
    int second_scale, unit_step;
    int first_tile, first_unit;
    LevelTable table;
  };

  __device__ __forceinline__ Run run_of(const MatvecArgs& args, const TileRound& round) const {
    Run run{args.unit, args.scale_shift, args.x_shift, args.offset_vectors};
    run.side = kept(Unit::scales_from_codes(lane_));
    run.second_scale = (4 >> args.scale_shift) * 32;
    run.unit_step = input_bytes(1, 0, args.x_group);
    run.first_tile = divide(round.begin, round.units);
    run.first_unit = round.begin - run.first_tile * round.units;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      run.table.words[i] = args.table.words[i];
    return run;
  }

  __device__ __forceinline__ void multiply(const StepPhase& phase) {
    __shared__ double squares[kFusedUnits];
    const MatvecArgs& args = phase.matvec;
    const InputImage image{inputs(), 1, 1, kStepWarps};
    TileRound round;
    Run run;
    const auto meanwhile = [&] {
      stream_.fill(phases());
      round = tiles_of_block(args, warp_);
      run = run_of(args, round);
    };
    if (phase.prepares) {
      make_own_inputs(phase, step_epoch, image, squares, warp_, lane_, meanwhile);
    } else {
      meanwhile();
      read_shared_inputs(phase, step_epoch, image, squares);
    }
    multiply_run(run, round);
    Unit::write_tiles(
        args, sums(), round, kStepWarps, false,
        [&] { return args.in.gain ? norm_factor(args, squares, lane_) : 1.0f; },
        [&](const TileSet& set, int64_t row, float value) {
          exchange(set.exchange + exchange_place(static_cast<int>(row)), value,
                   tag_bit(phase.out[&set - args.set], step_epoch));
        });
  }

  __device__ __forceinline__ void multiply_run(const Run& run, const TileRound& round) {
    const typename Unit::Places places = Unit::places(lane_, 1);
    int tile = run.first_tile, unit = run.first_unit;
#pragma unroll 1
    for (int left = round.end - round.begin; left > 0; unit = 0, ++tile) {
      float y[1][4] = {};
      uint32_t x = shared_address(inputs()) + unit * run.unit_step;
      int count = min(round.units - unit, left);
      left -= count;
#pragma unroll 1
      while (count > 0) {
        bool replaces;
        int units = stream_.piece(phases(), count, replaces);
        count -= units;
#pragma unroll 1
        for (; units > 0; --units, x += run.unit_step) {
          const uint32_t codes = stream_.oldest();
          Unit::multiply(run, run.table, run.second_scale, codes, codes + run.side, x, places, y,
                         [&] { stream_.replace_oldest(replaces); });
        }
      }
      Unit::store_sums(sums(), warp_ + tile, 1, lane_, y);
    }
  }

  __device__ __forceinline__ void attend(const StepPhase& phase) {
    __shared__ ParkedStream parked[kStepWarps];
    stream_.park(parked[warp_]);
    const StepBits bits = bits_of(phase, step_epoch);
    if (phase.attention.head_dim == 64) {
      attend_phase<64>(phase.attention, inputs(), bits);
    } else {
      attend_phase<128>(phase.attention, inputs(), bits);
    }
    stream_.resume(parked[warp_], phases());
  }

  const StepArgs& args_;
  const int lane_, warp_;
  Stream stream_;
  int phase_ = 0;
  int known_ = 0;  // phases up to this one have been in shared memory
};

template <int Bits, int Flush>
__global__ void __launch_bounds__(kStepWarps * 32, 1)
    step_kernel_of(const __grid_constant__ StepArgs args) {
#if __CUDA_ARCH__ >= 900
  Step<Bits, Flush>(args).run();
#endif
}

}  // namespace walsh::cuda
