// The kernel of a whole step (step.h).
#pragma once

#include "kernels/cuda/step_attention.cuh"
#include "kernels/cuda/step_inputs.cuh"
#include "kernels/cuda/step_stream.cuh"

namespace walsh::cuda {

// The blocks of a launch wait for each other. The counter only grows within a launch; the last
// block to leave makes it zero again.
class GridBarrier {
 public:
  __device__ explicit GridBarrier(uint32_t* counter) : counter_(counter) {}

  // By one thread, behind a barrier of the block: what its threads wrote comes before.
  __device__ void arrive() {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter_) : "memory");
  }

  // By one thread; the others of the block follow behind a barrier of the block.
  __device__ void wait(int arrivals) const {
    const uint32_t wanted = static_cast<uint32_t>(arrivals) * gridDim.x;
    uint32_t seen;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter_) : "memory");
    } while (seen < wanted);
  }

  __device__ void leave(int arrivals) {
    const uint32_t last = (static_cast<uint32_t>(arrivals) + 1) * gridDim.x - 1;
    if (atomicAdd(counter_, 1u) == last) *counter_ = 0;
  }

 private:
  uint32_t* counter_;
};

// For the results of the phase before, by all threads of a block.
struct PhaseWait {
  GridBarrier barrier;
  int arrivals;

  __device__ __forceinline__ void operator()() const {
    if (threadIdx.x == 0) barrier.wait(arrivals);
    __syncthreads();
  }
};

// Not inlined: with the registers of a tile, those of the weights would be spilled everywhere.
template <int Dim>
__device__ __noinline__ void attend_phase(const StepAttention& args, const StepRow& row,
                                          std::byte* memory, PhaseWait wait) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  StepAttend<Dim>(args, row, memory, warp, lane).run(wait);
}

// Rings of weights, inputs, sums of products, phases (StepMemory, StepArgs).
extern __shared__ __align__(128) std::byte step_shared[];

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
    __shared__ StepRow row;
    for (int phase = warp_; phase < min(args_.count, kKnownPhases); phase += kStepWarps)
      load_phase(phase);
    __syncthreads();
    stream_.fill(phases());
    wait_previous_kernel();
    if (threadIdx.x == 0 && args_.position)
      row = {*args_.position, args_.pages + *args_.sequence * args_.pages_per_sequence};
    __syncthreads();
#pragma unroll 1
    for (phase_ = 0; phase_ < args_.count; ++phase_) {
      const StepPhase& p = phases()[phase_];
      if (p.kind == StepKind::product) {
        multiply(p);
      } else if (p.kind == StepKind::inputs) {
        make_inputs(p);
      } else {
        attend(p, row);
      }
      end_phase();
    }
    allow_next_kernel();
    if (threadIdx.x == 0) barrier().leave(arrivals_);
  }

 private:
  __device__ __forceinline__ std::byte* inputs() const {
    return step_shared + Stream::kMemory.ring_bytes();
  }
  __device__ __forceinline__ float* sums() const {
    return reinterpret_cast<float*>(inputs() + args_.input_bytes);
  }
  __device__ __forceinline__ PhaseQueue phases() const {
    return {reinterpret_cast<StepPhase*>(inputs() + args_.input_bytes + args_.sum_bytes),
            min(args_.count, phase_ + kKnownPhases - 1)};
  }
  __device__ __forceinline__ GridBarrier barrier() const {
    return GridBarrier(args_.arrived);
  }

  // By one warp.
  __device__ void load_phase(int phase) {
    const auto* from = reinterpret_cast<const uint4*>(args_.phases + phase);
    auto* to = reinterpret_cast<uint4*>(phases().slots + phase % kKnownPhases);
    for (int i = lane_; i < static_cast<int>(sizeof(StepPhase) / sizeof(uint4)); i += 32)
      to[i] = from[i];
  }

  __device__ __forceinline__ void wait(const StepPhase& phase) {
    PhaseWait{barrier(), phase.waits ? arrivals_ : 0}();
  }

  // The place of the phase that ends is for another one, which counts as known a phase later, when
  // all threads have passed a barrier.
  __device__ __forceinline__ void end_phase() {
    __syncthreads();
    const bool next_waits = phase_ + 1 < args_.count && phases()[phase_ + 1].waits;
    arrivals_ += next_waits;
    if (threadIdx.x == 0 && next_waits) barrier().arrive();
    if (warp_ == 1 && phase_ + kKnownPhases < args_.count) load_phase(phase_ + kKnownPhases);
    if (warp_ == 2 && phase_ + 2 < args_.count) expect_gains(phases()[phase_ + 2].matvec.in);
  }

  // Gains of a norm are needed once per step and are in no cache: each block asks for some of them
  // a phase ahead. By one warp.
  __device__ __forceinline__ void expect_gains(const InputView& in) const {
    if (!in.gain) return;
    const auto blocks = static_cast<int>(gridDim.x);
    for (int line = static_cast<int>(blockIdx.x) + lane_ * blocks; line * 32 < in.width;
         line += 32 * blocks)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(in.gain + line * 32));
  }

  // What the product of a unit reads of its arguments, and where a warp begins, in registers.
  struct Run {
    float unit;
    int scale_shift, x_shift, offset_vectors;
    int second_scale, unit_step;
    int first_tile, first_unit;
    LevelTable table;
  };

  __device__ __forceinline__ Run run_of(const MatvecArgs& args, const TileRound& round) const {
    Run run{args.unit, args.scale_shift, args.x_shift, args.offset_vectors};
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
    stream_.fill(phases());
    const TileRound round = tiles_of_block(args, warp_);
    const Run run = run_of(args, round);
    if (phase.prepares) {
      make_own_inputs(args, image, squares, warp_, lane_, [&] { wait(phase); });
    } else {
      wait(phase);
      read_shared_inputs(args, image, args_.squares, squares);
    }
    multiply_run(run, round);
    Unit::write_tiles(args, sums(), round, kStepWarps, false,
                      [&] { return args.in.gain ? norm_factor(args, squares, lane_) : 1.0f; });
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
      for (; count > 0; --count, x += run.unit_step) {
        const uint32_t slot = stream_.oldest();
        Unit::multiply(run, run.table, run.second_scale, lane_, slot, slot + Unit::kScales,
                       slot + Unit::kOffsets, x, places, y,
                       [&] { stream_.replace_oldest(phases()); });
      }
      Unit::store_sums(sums(), warp_ + tile, 1, lane_, y);
    }
  }

  __device__ __forceinline__ void make_inputs(const StepPhase& phase) {
    wait(phase);
    make_shared_inputs(phase.matvec, args_.squares, warp_, lane_);
  }

  __device__ __forceinline__ void attend(const StepPhase& phase, const StepRow& row) {
    __shared__ ParkedStream parked[kStepWarps];
    stream_.park(parked[warp_]);
    const PhaseWait wait{barrier(), phase.waits ? arrivals_ : 0};
    if (phase.attention.head_dim == 64) {
      attend_phase<64>(phase.attention, row, inputs(), wait);
    } else {
      attend_phase<128>(phase.attention, row, inputs(), wait);
    }
    stream_.resume(parked[warp_], phases());
  }

  const StepArgs& args_;
  const int lane_, warp_;
  Stream stream_;
  int phase_ = 0, arrivals_ = 0;
};

template <int Bits, int Flush>
__global__ void __launch_bounds__(kStepWarps * 32, 1)
    step_kernel_of(const __grid_constant__ StepArgs args) {
#if __CUDA_ARCH__ >= 900
  Step<Bits, Flush>(args).run();
#endif
}

}  // namespace walsh::cuda
