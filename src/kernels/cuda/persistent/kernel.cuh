// The kernel of a whole step (persistent/program.h).
#pragma once

#include "kernels/cuda/persistent/attention.cuh"
#include "kernels/cuda/persistent/inputs.cuh"
#include "kernels/cuda/persistent/stream.cuh"

namespace walsh::cuda {

// Not inlined: with the registers of a tile, those of the weights would be spilled everywhere.
template <int Dim>
__device__ __noinline__ void attend_phase(const StepAttention& args, std::byte* memory,
                                          StepBits bits) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  StepAttend<Dim>(args, memory, bits, warp, lane).run();
}

// Rings of weights, inputs of two kinds, sums of products, phases (StepMemory, StepArgs).
extern __shared__ __align__(128) std::byte step_shared[];
__shared__ uint32_t step_epoch;

template <typename Codes>
class Step {
 public:
  using Unit = typename Codes::Unit;
  using Stream = WeightStream<Codes>;

  // The number of the warp comes by a shuffle, so that the compiler keeps it: reading it again
  // takes 30 cycles.
  __device__ explicit Step(const StepArgs& args)
      : args_(args),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(__shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0)),
        stream_(step_shared, warp_, lane_) {}

  __device__ __forceinline__ void run() {
    known_ = min(args_.count, kFirstPhases);
    if (warp_ < known_) {
      copy_phase(warp_);
      find_work_of(warp_);
    }
    PairInputs::begin(args_.pair);
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
        find_work_of(next_phase(p));
      } else if (p.kind == StepKind::inputs) {
        make_shared_inputs(p, step_epoch, warp_, lane_);
      } else {
        attend(p);
      }
      __syncthreads();
    }
    allow_next_kernel();
    if (threadIdx.x == 0) leave();
  }

 private:
  __device__ __forceinline__ std::byte* inputs() const {
    return step_shared + Stream::kMemory.ring_bytes() + 2 * args_.own_bytes;
  }
  __device__ __forceinline__ float* sums() const {
    return reinterpret_cast<float*>(inputs() + args_.input_bytes);
  }
  __device__ __forceinline__ PhaseQueue phases() const {
    auto* slots = reinterpret_cast<StepPhase*>(inputs() + args_.input_bytes + args_.sum_bytes);
    return {slots, reinterpret_cast<StepWork*>(slots + kKnownPhases), known_};
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

  // The phases before a product, which all have left, make room for others, which are known in the
  // next product. The last warps bring them while values are on their way, and find their work when
  // others write results.
  __device__ __forceinline__ int next_phase(const StepPhase& phase) const {
    const int next = phase.known + kStepWarps - 1 - warp_;
    return next < min(args_.count, phase_ + kKnownPhases) ? next : -1;
  }
  __device__ __forceinline__ void copy_phase(int phase) const {
    if (phase < 0) return;
    int first = 0, next = 0;
    if constexpr (Codes::kSeveral) {
      const uint16_t* share = args_.shares + phase * (gridDim.x + 1) + blockIdx.x;
      first = share[0];
      next = share[1];
    }
    const auto* from = reinterpret_cast<const uint4*>(args_.phases + phase);
    auto* to = reinterpret_cast<uint4*>(&phases()[phase]);
    for (int i = lane_; i < static_cast<int>(sizeof(StepPhase) / sizeof(uint4)); i += 32)
      to[i] = from[i];
    __syncwarp();
    if constexpr (Codes::kSeveral) {
      if (lane_ == 0) {
        phases()[phase].first_tile = first;
        phases()[phase].tiles = next - first;
      }
      __syncwarp();
    }
  }
  __device__ __forceinline__ void find_work_of(int phase) const {
    if (phase < 0 || lane_ >= kStepWarps) return;
    find_work<Codes>(phases()[phase], lane_, phases().work(phase));
  }

  __device__ __forceinline__ PairInputs own_inputs(const StepPhase& phase) const {
    return {step_shared + Stream::kMemory.ring_bytes(), args_.own_bytes, args_.pair, phase.turn};
  }
  // Units, then the sums of their squares.
  __device__ __forceinline__ std::byte* inputs_of(const StepPhase& phase) const {
    return phase.prepares ? own_inputs(phase).place() : inputs();
  }
  __device__ __forceinline__ double* squares_of(const StepPhase& phase) const {
    return squares_behind(inputs_of(phase), phase.matvec.units, phase.unit_bytes);
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

  // What the product of a unit reads of its arguments, in registers.
  struct Run {
    float unit;
    int scale_shift, x_shift, offset_vectors;
    uint32_t side;  // from a lane's codes to its scales
    int second_scale, unit_step;
    LevelTable table;
  };

  // `Code`: MatvecArgs, or StepCode of one of several.
  template <typename UnitOf, typename Code>
  __device__ __forceinline__ Run run_of(const StepPhase& phase, const Code& code) const {
    Run run{code.unit, code.scale_shift, phase.matvec.x_shift, code.offset_vectors};
    run.side = kept(UnitOf::scales_from_codes(lane_));
    run.second_scale = (4 >> code.scale_shift) * 32;
    run.unit_step = phase.unit_bytes;
    run.table = UnitOf::levels(code.table);
    return run;
  }

  __device__ __forceinline__ void multiply(const StepPhase& phase) {
    const MatvecArgs& args = phase.matvec;
    const auto meanwhile = [&] {
      stream_.fill(phases());
      copy_phase(next_phase(phase));
    };
    known_ = phase.known;
    if (phase.prepares) {
      make_own_inputs(phase, step_epoch, own_inputs(phase), warp_, lane_, meanwhile);
    } else {
      meanwhile();
      read_shared_inputs(phase, step_epoch, inputs(), squares_of(phase));
    }
    multiply_run(phase, phases().work(phase_).run[warp_], shared_address(inputs_of(phase)));
    Unit::write_tiles(
        args, sums(), tiles_of_block<Codes::kSeveral>(phase), kStepWarps, warp_, lane_, false,
        [&] { return args.in.gain ? norm_factor(args, squares_of(phase), lane_) : 1.0f; },
        [&](const TileSet& set, int64_t row) {
          float* const to = set.exchange + exchange_place(static_cast<int>(row));
          const uint32_t bit = tag_bit(phase.out[&set - args.set], step_epoch);
          return [to, bit](float value) { exchange(to, value, bit); };
        });
  }

  __device__ __forceinline__ void multiply_run(const StepPhase& phase, const StepRun& work,
                                               uint32_t inputs) {
    const int units = phase.matvec.units;
    const typename Unit::Places places = Unit::places(lane_, 1);
    if constexpr (Codes::kSeveral) {
      int tile = work.tile, unit = work.unit;
#pragma unroll 1
      for (int left = work.count; left > 0; unit = 0, ++tile) {
        float y[1][4] = {};
        const int count = min(units - unit, left);
        const TileSet& set = set_of(phase.matvec, phase.first_tile + tile);
        const StepCode& code = phase.code[&set - phase.matvec.set];
        left -= count;
        Codes::with_unit(code, [&]<typename UnitOf>() {
          const Run run = run_of<UnitOf>(phase, code);
          multiply_tile<UnitOf>(run, inputs + unit * run.unit_step, count, places, y);
        });
        Unit::store_sums(sums(), warp_ + tile, 1, lane_, y);
      }
    } else {
      const Run run = run_of<Unit>(phase, phase.matvec);
      int tile = work.tile, unit = work.unit;
#pragma unroll 1
      for (int left = work.count; left > 0; unit = 0, ++tile) {
        float y[1][4] = {};
        const int count = min(units - unit, left);
        left -= count;
        multiply_tile<Unit>(run, inputs + unit * run.unit_step, count, places, y);
        Unit::store_sums(sums(), warp_ + tile, 1, lane_, y);
      }
    }
  }

  // The next `count` units of the stream, which are of one tile, times the inputs from x on.
  template <typename UnitOf>
  __device__ __forceinline__ void multiply_tile(const Run& run, uint32_t x, int count,
                                                const typename Unit::Places& places,
                                                float (&y)[1][4]) {
#pragma unroll 1
    while (count > 0) {
      bool replaces;
      int now = stream_.piece(phases(), count, replaces);
      count -= now;
      const auto multiply_unit = [&](uint32_t codes, const auto& refill) {
        UnitOf::multiply(run, run.table, run.second_scale, codes, codes + run.side, x, places, y,
                         refill);
        x += run.unit_step;
      };
      // Of two bits two at a time, since the loop itself takes many instructions. With more bits
      // the second one is longer in coming than that takes.
      constexpr int kAtOnce = UnitOf::kVectors == 2 ? 2 : 1;
#pragma unroll 1
      for (; now >= kAtOnce; now -= kAtOnce) {
        uint32_t codes = stream_.template oldest<kAtOnce>();
        for (int i = 1; i < kAtOnce; ++i, codes = stream_.next(codes))
          multiply_unit(codes, [] {});
        multiply_unit(codes, [&] { stream_.template replace_oldest<kAtOnce>(replaces); });
      }
      if (now > 0) {
        multiply_unit(stream_.template oldest<1>(),
                      [&] { stream_.template replace_oldest<1>(replaces); });
      }
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

template <typename Codes>
__global__ void __launch_bounds__(kStepWarps * 32, 1)
    step_kernel_of(const __grid_constant__ StepArgs args) {
#if __CUDA_ARCH__ >= 900
  Step<Codes>(args).run();
#endif
}

}  // namespace walsh::cuda
