// Implements the persistent kernel, which computes all layers of a token in one launch
// (persistent/program.h).
#pragma once

#include "kernels/cuda/persistent/attend_phases.cuh"
#include "kernels/cuda/persistent/delta.cuh"
#include "kernels/cuda/persistent/experts.cuh"
#include "kernels/cuda/persistent/input_rows.cuh"
#include "kernels/cuda/persistent/inputs.cuh"
#include "kernels/cuda/persistent/stream.cuh"
#include "kernels/cuda/persistent/words.cuh"

namespace walsh::cuda {

__shared__ uint32_t launch_epoch;

template <typename Codes>
class PersistentBlock {
 public:
  using KTile = typename Codes::KTile;
  using Stream = WeightStream<Codes>;

  // Starts the block. The warp number is taken from a shuffle, so that the compiler keeps it in a
  // register; reading it again takes 30 cycles.
  __device__ explicit PersistentBlock(const ProgramArgs& args)
      : args_(args),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(__shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0)),
        stream_(program_shared, warp_, lane_) {}

  __device__ __forceinline__ void run() {
    known_ = min(args_.count, kFirstPhases);
    if constexpr (Codes::kExperts) chosen_ = args_.first_choice;
    if (warp_ < known_) {
      copy_phase(warp_);
      find_work_of(warp_);
    }
    PairInputs::begin(args_.pair);
    __syncthreads();
    stream_.fill(phases());
    wait_previous_kernel();
    if (threadIdx.x == 0) launch_epoch = args_.left[1];
    if (args_.position) load_row();
    __syncthreads();
#pragma unroll 1
    for (phase_ = 0; phase_ < args_.count; ++phase_) {
      const ProgramPhase& p = phases()[phase_];
      if (p.kind == PhaseKind::matmul) {
        multiply(p);
        find_work_of(next_phase(p));
      } else if (p.kind == PhaseKind::inputs) {
        if constexpr (Codes::kRows > 1) {
          make_shared_rows<Codes::kRows>(p, launch_epoch, warp_, lane_);
        } else {
          make_shared_inputs(p, launch_epoch, warp_, lane_, k_tiles_of(p));
        }
      } else if (Codes::kExperts && p.kind == PhaseKind::router) {
        multiply_router(p, launch_epoch, reinterpret_cast<RouterSums*>(sums()), warp_, lane_);
      } else if (Codes::kMixers && p.kind == PhaseKind::delta) {
        step_delta(p);
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
    return program_shared + Stream::kMemory.ring_bytes() + 2 * args_.own_bytes;
  }
  __device__ __forceinline__ float* sums() const {
    return reinterpret_cast<float*>(inputs() + args_.input_bytes);
  }
  __device__ __forceinline__ PhaseQueue phases() const {
    auto* slots = reinterpret_cast<ProgramPhase*>(inputs() + args_.input_bytes + args_.sum_bytes);
    const int known = Codes::kExperts ? min(known_, chosen_) : known_;
    return {slots, reinterpret_cast<PhaseWork*>(slots + kKnownPhases), known};
  }
  // Returns the expert data of a phase, which programs with experts have in shared memory. The
  // choice is behind it.
  __device__ __forceinline__ ExpertPhase& experts_of(int phase) const {
    return first_experts()[phase & (kKnownPhases - 1)];
  }
  __device__ __forceinline__ ExpertPhase* first_experts() const {
    return reinterpret_cast<ExpertPhase*>(phases().works + kKnownPhases);
  }
  __device__ __forceinline__ Choice& choice() const {
    return *reinterpret_cast<Choice*>(first_experts() + kKnownPhases);
  }

  __device__ __forceinline__ void load_rows() const {
    const int row = static_cast<int>(threadIdx.x) / kProgramPages;
    const int page = static_cast<int>(threadIdx.x) % kProgramPages;
    if (threadIdx.x == 0) program_row_count = args_.rows;
    if (row >= Codes::kRows) return;
    const int from = min(row, args_.rows - 1);
    const int32_t* pages = args_.pages + args_.sequence[from] * args_.pages_per_sequence;
    if (page == 0) {
      program_rows[row].position = args_.position[from];
      program_rows[row].pages = pages;
    }
    if (page < args_.pages_per_sequence) program_rows[row].first_pages[page] = pages[page];
  }

  __device__ __forceinline__ void load_row() const {
    if constexpr (Codes::kRows > 1) return load_rows();
    const int32_t* pages = args_.pages + *args_.sequence * args_.pages_per_sequence;
    const auto i = static_cast<int>(threadIdx.x);
    if (i == 0) {
      program_row.position = *args_.position;
      program_row.pages = pages;
      if constexpr (Codes::kMixers || Codes::kCodedDim > 0) program_sequence = *args_.sequence;
      if constexpr (Codes::kCodedDim > 0) program_row.kept = args_.kept[program_sequence];
    }
    if (i < min(int64_t{kProgramPages}, args_.pages_per_sequence))
      program_row.first_pages[i] = pages[i];
  }

  // Goes to the next phase. Phases that all warps have left make room for later ones, which the
  // next product then knows. The last warps copy these while values are on their way, and compute
  // their work while others write results.
  __device__ __forceinline__ int next_phase(const ProgramPhase& phase) const {
    const int next = phase.known + kProgramWarps - 1 - warp_;
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
    for (int i = lane_; i < static_cast<int>(sizeof(ProgramPhase) / sizeof(uint4)); i += 32)
      to[i] = from[i];
    if constexpr (Codes::kExperts) {
      const auto* more = reinterpret_cast<const uint4*>(args_.experts + phase);
      for (int i = lane_; i < static_cast<int>(sizeof(ExpertPhase) / sizeof(uint4)); i += 32)
        reinterpret_cast<uint4*>(&experts_of(phase))[i] = more[i];
    }
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
    if (phase < 0 || lane_ >= kProgramWarps) return;
    if constexpr (Codes::kExperts) {
      if (phases()[phase].kind == PhaseKind::matmul && experts_of(phase).chosen > 0)
        return find_expert_work<Codes>(phases()[phase], experts_of(phase), lane_,
                                       phases().work(phase));
    }
    find_work<Codes>(phases()[phase], lane_, phases().work(phase));
  }

  // Returns a function that turns the number of a k-tile into its input.
  __device__ __forceinline__ auto k_tiles_of(const ProgramPhase& phase) const {
    if constexpr (Codes::kExperts && Codes::kMixers) {
      return [this, &phase](int i) {
        return HeadKTile<SlotKTile>{SlotKTile(phase, experts_of(phase_), choice(), i)};
      };
    } else if constexpr (Codes::kMixers) {
      return [&phase](int i) { return HeadKTile<RowKTile>{{phase, i}}; };
    } else if constexpr (Codes::kExperts) {
      return [this, &phase](int i) { return SlotKTile(phase, experts_of(phase_), choice(), i); };
    } else {
      return [&phase](int i) { return RowKTile{phase, i}; };
    }
  }

  __device__ __forceinline__ PairInputs own_inputs(const ProgramPhase& phase) const {
    return {program_shared + Stream::kMemory.ring_bytes(), args_.own_bytes, args_.pair, phase.turn};
  }
  // Returns the k-tiles of the input. The sums of their squares follow them.
  __device__ __forceinline__ std::byte* inputs_of(const ProgramPhase& phase) const {
    return phase.prepares ? own_inputs(phase).place() : inputs();
  }
  __device__ __forceinline__ double* squares_of(const ProgramPhase& phase) const {
    return squares_behind(inputs_of(phase), phase.gemv.k_tiles, phase.k_tile_bytes);
  }

  // Leaves the launch. The last block to leave begins a new epoch.
  __device__ void leave() const {
    if (atomicAdd(args_.left, 1u) != gridDim.x - 1) return;
    args_.left[0] = 0;
    args_.left[1] = launch_epoch + 1;
  }

  // Keeps a value in a register, so that the compiler does not recompute it in a loop that has no
  // register to spare.
  template <typename T>
  static __device__ __forceinline__ T kept(T value) {
    asm volatile("" : "+r"(value));
    return value;
  }

  // Holds in registers the arguments that the product of a k-tile reads.
  struct Run {
    float unit;
    int scale_shift, x_shift, offset_vectors;
    uint32_t side;  // It is the distance from a lane's codes to its scales.
    int second_scale, k_tile_step;
    LevelTable table;
  };

  // `Code` is GemvArgs, or PhaseCode in programs with several codes.
  template <typename KTileOf, typename Code>
  __device__ __forceinline__ Run run_of(const ProgramPhase& phase, const Code& code) const {
    Run run{};
    run.unit = code.unit;
    run.scale_shift = code.scale_shift;
    run.x_shift = phase.gemv.x_shift;
    run.offset_vectors = code.offset_vectors;
    run.side = kept(KTileOf::scales_from_codes(lane_));
    run.second_scale = (4 >> code.scale_shift) * 32;
    run.k_tile_step = phase.k_tile_bytes;
    run.table = KTileOf::levels(code.table);
    return run;
  }

  __device__ __forceinline__ void multiply(const ProgramPhase& phase) {
    const GemvArgs& args = phase.gemv;
    const auto meanwhile = [&] {
      if constexpr (Codes::kExperts) {
        copy_phase(next_phase(phase));
        choose(phase);
        expect_next_router();
      }
      stream_.fill(phases());
      if constexpr (!Codes::kExperts) copy_phase(next_phase(phase));
      if constexpr (Codes::kMixers) expect_next_step();
    };
    known_ = phase.known;
    if constexpr (Codes::kRows > 1) {
      if (phase.prepares) {
        make_own_rows<Codes::kRows>(phase, launch_epoch, own_inputs(phase), warp_, lane_,
                                    meanwhile);
      } else {
        meanwhile();
        read_shared_rows<Codes::kRows>(phase, launch_epoch, inputs(), squares_of(phase));
      }
    } else if (phase.prepares) {
      make_own_inputs<Codes::kExperts>(phase, Codes::kDoubles && phase.doubled, launch_epoch,
                                       own_inputs(phase), warp_, lane_, k_tiles_of(phase),
                                       meanwhile);
    } else {
      meanwhile();
      read_shared_inputs(phase, launch_epoch, inputs(), squares_of(phase));
    }
    if constexpr (Codes::kExperts) end_choice();
    multiply_run(phase, phases().work(phase_).run[warp_], shared_address(inputs_of(phase)));
    KTile::write_tiles(
        args, sums(), tiles_of_block<Codes::kSeveral>(phase), kProgramWarps, warp_, lane_, false,
        [&](int token) {
          if (!args.in.gain) return 1.0f;
          if constexpr (Codes::kRows > 1)
            return norm_factor_of_row(args, squares_of(phase), token, lane_);
          return norm_factor(args, squares_of(phase), lane_);
        },
        [&](const TileSet& set, int64_t row, int token) {
          float* to = set.exchange + exchange_place(static_cast<int>(row));
          if constexpr (Codes::kRows > 1) to += token * exchange_stride(set.rows);
          const uint32_t bit = tag_bit(phase.out[&set - args.set], launch_epoch);
          return [to, bit](float value) { exchange(to, value, bit); };
        });
    if constexpr (Codes::kExperts) end_padding();
  }

  // Prefetches the data of the delta net whose step comes next, if there is one.
  __device__ __forceinline__ void expect_next_step() const {
    const int next = phase_ + 1;
    if (next >= min(args_.count, known_)) return;
    const ProgramPhase& phase = phases()[next];
    if (phase.kind == PhaseKind::delta) expect_step(phase.delta, warp_ * 32 + lane_);
  }

  // Prefetches this block's row of the router that comes next, if there is one.
  __device__ __forceinline__ void expect_next_router() const {
    const int next = phase_ + 1;
    if (next >= min(args_.count, known_)) return;
    const ProgramPhase& phase = phases()[next];
    if (phase.kind != PhaseKind::router) return;
    const int thread = (warp_ + kProgramWarps - kChoiceWarp) % kProgramWarps * 32 + lane_;
    expect_router(phase.router, thread);
  }

  // Returns whether this phase is the first that needs a choice of experts.
  __device__ __forceinline__ bool chooses() const {
    return experts_of(phase_).next != 0;
  }

  // If the phase is the first that needs a choice of experts, one warp makes the choice and moves
  // the work of all warps to the chosen experts. The others wait for it: warps that make an input
  // come when they have made it, in a meeting of their own, and the rest at once. The weights of
  // this phase are requested then, and only later those behind them, up to the next choice, so that
  // they do not delay what this phase waits for.
  __device__ __forceinline__ void choose(const ProgramPhase& phase) {
    if (!chooses()) return;
    const ExpertPhase& experts = experts_of(phase_);
    const int makers = makers_of(phase);
    if (warp_ != kChoiceWarp) {
      const bool makes = warp_ < makers;
      meet_some(makes, threads_of_meeting(makes, makers));
    } else {
      read_logits(experts, tag_bit(phase.in[kLogitsArray], launch_epoch), choice(), lane_);
      choose_experts<kMostStepLaneExperts>(experts, choice(), lane_);
      const int of = lane_ < kProgramWarps ? phase_ : experts.last;
      move_expert_work(experts_of(of), choice(), lane_ % kProgramWarps, phases().work(of));
      __syncwarp();
      for (int makes = 0; makes < 2; ++makes)
        if (const int threads = threads_of_meeting(makes != 0, makers); threads > 32)
          announce_to(makes, threads);
    }
    chosen_ = phase_ + 1;
  }

  // Returns how many threads a meeting has. The warp that makes the choice is in both.
  static __device__ __forceinline__ int threads_of_meeting(bool makes, int makers) {
    const int warps = makes ? makers : kProgramWarps - makers;
    return (warps + ((kChoiceWarp < makers) != makes)) * 32;
  }

  // Returns how many warps make k-tiles of the input. These are the first ones.
  __device__ __forceinline__ int makers_of(const ProgramPhase& phase) const {
    if (!phase.prepares) return 0;
    const int first = own_inputs(phase).k_tile_of(0);
    return (phase.gemv.k_tiles - first + args_.pair - 1) / args_.pair;
  }

  // Ends a choice. Weights behind those of its phase are requested as k-tiles of the phase are
  // read, and in end_padding() what is then still missing, so that they delay nothing that the
  // phase waits for.
  __device__ __forceinline__ void end_choice() {
    if (!chooses()) return;
    chosen_ = experts_of(phase_).next;
    stream_.pad();
  }
  __device__ __forceinline__ void end_padding() {
    if (!chooses()) return;
    stream_.pass_padding(phases().work(phase_).run[warp_].count);
    stream_.fill(phases());
  }

  __device__ __forceinline__ void multiply_run(const ProgramPhase& phase, const PhaseRun& work,
                                               uint32_t inputs) {
    if constexpr (Codes::kSeveral) {
      multiply_several(phase, work, inputs);
    } else if constexpr (Codes::kDoubles) {
      if (phase.doubled) {
        multiply_one<typename Codes::Doubled>(phase, work, inputs);
      } else {
        multiply_one<KTile>(phase, work, inputs);
      }
    } else {
      multiply_one<KTile>(phase, work, inputs);
    }
  }

  __device__ __forceinline__ void multiply_several(const ProgramPhase& phase, const PhaseRun& work,
                                                   uint32_t inputs) {
    const int k_tiles = phase.gemv.k_tiles;
    const typename KTile::Places places = KTile::places(lane_, 1);
    int tile = work.tile, k_tile = work.k_tile;
#pragma unroll 1
    for (int left = work.count; left > 0; k_tile = 0, ++tile) {
      float y[1][4] = {};
      const int count = min(k_tiles - k_tile, left);
      const TileSet& set = set_of(phase.gemv, phase.first_tile + tile);
      const PhaseCode& code = phase.code[&set - phase.gemv.set];
      left -= count;
      Codes::with_k_tile(code, [&]<typename KTileOf>() {
        const Run run = run_of<KTileOf>(phase, code);
        multiply_tile<KTileOf>(run, inputs + k_tile * run.k_tile_step, count, places, y);
      });
      KTile::store_sums(sums(), warp_ + tile, 1, lane_, y);
    }
  }

  template <typename KTileOf>
  __device__ __forceinline__ void multiply_one(const ProgramPhase& phase, const PhaseRun& work,
                                               uint32_t inputs) {
    const int k_tiles = phase.gemv.k_tiles;
    // Places of several rows depend on the lane. They are found again for every phase, because
    // values that live on through all phases are spilled.
    const typename KTile::Places places =
        KTileOf::places(Codes::kRows == 1 ? lane_ : kept(lane_), Codes::kRows);
    const Run run = run_of<KTileOf>(phase, phase.gemv);
    int tile = work.tile, k_tile = work.k_tile;
#pragma unroll 1
    for (int left = work.count; left > 0; k_tile = 0, ++tile) {
      float y[1][4] = {};
      const int count = min(k_tiles - k_tile, left);
      left -= count;
      multiply_tile<KTileOf>(run, inputs + k_tile * run.k_tile_step, count, places, y);
      KTile::store_sums(sums(), warp_ + tile, 1, lane_, y);
    }
  }

  // Multiplies the next `count` k-tiles of the stream, which belong to one tile, by the inputs from
  // x on.
  template <typename KTileOf>
  __device__ __forceinline__ void multiply_tile(const Run& run, uint32_t x, int count,
                                                const typename KTile::Places& places,
                                                float (&y)[1][4]) {
#pragma unroll 1
    while (count > 0) {
      bool replaces;
      int now = stream_.piece(phases(), count, replaces);
      count -= now;
      const auto multiply_k_tile = [&](uint32_t codes, const auto& refill) {
        KTileOf::multiply(run, run.table, run.second_scale, codes, codes + run.side, x, places, y,
                          refill);
        x += run.k_tile_step;
      };
      // With 2-bit codes two k-tiles are processed at a time, because the loop itself takes many
      // instructions. With more bits the second k-tile arrives later than that would save.
      constexpr int kAtOnce = KTileOf::kVectors == 2 ? 2 : 1;
#pragma unroll 1
      for (; now >= kAtOnce; now -= kAtOnce) {
        uint32_t codes = stream_.template oldest<kAtOnce>();
        for (int i = 1; i < kAtOnce; ++i, codes = stream_.next(codes))
          multiply_k_tile(codes, [] {});
        multiply_k_tile(codes, [&] { stream_.template replace_oldest<kAtOnce>(replaces); });
      }
      if (now > 0) {
        multiply_k_tile(stream_.template oldest<1>(),
                        [&] { stream_.template replace_oldest<1>(replaces); });
      }
    }
  }

  __device__ __forceinline__ void attend(const ProgramPhase& phase) {
    __shared__ ParkedStream parked[kProgramWarps];
    stream_.park(parked[warp_]);
    const PhaseBits bits = bits_of(phase, launch_epoch);
    if constexpr (Codes::kCodedDim > 0) {
      attend_codes<Codes::kCodedDim>(phase.attention, inputs(), bits);
    } else if constexpr (Codes::kRows > 1) {
      if (phase.attention.head_dim == 64) {
        attend_rows<64, Codes::kRows>(phase.attention, inputs(), bits);
      } else {
        attend_rows<128, Codes::kRows>(phase.attention, inputs(), bits);
      }
    } else if (phase.attention.head_dim == 64) {
      attend_phase<64, Codes::kMixers>(phase.attention, inputs(), bits);
    } else if (Codes::kMixers && phase.attention.head_dim == 256) {
      if constexpr (Codes::kMixers) attend_phase<256, true>(phase.attention, inputs(), bits);
    } else {
      attend_phase<128, Codes::kMixers>(phase.attention, inputs(), bits);
    }
    stream_.resume(parked[warp_], phases());
  }

  __device__ __forceinline__ void step_delta(const ProgramPhase& phase) {
    if constexpr (Codes::kMixers) {
      __shared__ ParkedStream parked[kProgramWarps];
      stream_.park(parked[warp_]);
      const DeltaBits bits = delta_bits_of(phase, launch_epoch);
      if (phase.delta.net.dims.key_dim <= 128) {
        step_phase<128>(phase.delta, inputs(), bits);
      } else {
        step_phase<kMostDeltaDim>(phase.delta, inputs(), bits);
      }
      stream_.resume(parked[warp_], phases());
    }
  }

  const ProgramArgs& args_;
  const int lane_, warp_;
  Stream stream_;
  int phase_ = 0;
  int known_ = 0;   // Phases with numbers below this have been in shared memory.
  int chosen_ = 0;  // For phases with numbers below this, no choice is missing.
};

template <typename Codes>
__global__ void __launch_bounds__(kProgramWarps * 32, 1)
    persistent_kernel_of(const __grid_constant__ ProgramArgs args) {
#if __CUDA_ARCH__ >= 900
  PersistentBlock<Codes>(args).run();
#endif
}

template <typename Codes, bool Experts, int Dim>
PersistentKernel coded_persistent_kernel() {
  using Own = std::conditional_t<Experts, WithExperts<Codes>, Codes>;
  return persistent_kernel_of<WithCodedCache<Own, Dim>>;
}

template <typename Codes, int Rows, bool Deep>
PersistentKernel rows_persistent_kernel() {
  return persistent_kernel_of<WithRows<Codes, Rows, Deep>>;
}

template <typename Codes, bool Experts, bool Mixers>
PersistentKernel persistent_kernel() {
  using Own = std::conditional_t<Experts, WithExperts<Codes>, Codes>;
  return persistent_kernel_of<std::conditional_t<Mixers, WithMixers<Own>, Own>>;
}

}  // namespace walsh::cuda
