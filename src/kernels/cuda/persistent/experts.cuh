// Computes layers with experts in the persistent kernel. All blocks share the product of the
// router. Every block makes the same choice from its logits and determines which matrices of the
// chosen experts it multiplies. Only then it requests their weights, and those of the phases behind
// them, up to the next choice.
#pragma once

#include "kernels/cuda/experts/warp_lanes.cuh"
#include "kernels/cuda/persistent/expert_phase.h"
#include "kernels/cuda/persistent/inputs.cuh"
#include "kernels/cuda/persistent/stream.cuh"

namespace walsh::cuda {

// This warp makes the choice. The first warps make the inputs of the layer, and the last ones load
// the next phases, so a warp in between is free.
inline constexpr int kChoiceWarp = kProgramWarps / 2;

// Describes a k-tile of an input in programs with experts. The input is that of one row, or of one
// of the chosen experts. In the latter case the rows lie one after the other, and the scales are
// multiplied by the weights of the choice.
struct SlotKTile {
  static constexpr bool kHeads = false, kAwaitsOne = false;

  const ProgramPhase& phase;
  const ExpertPhase& experts;
  const float* weights;
  const InputSlot at;
  const int k_tile;

  __device__ __forceinline__ SlotKTile(const ProgramPhase& of, const ExpertPhase& more,
                                       const Choice& choice, int number)
      : phase(of),
        experts(more),
        weights(choice.weights),
        at(input_slot(more, number)),
        k_tile(at.k_tile) {}

  __device__ __forceinline__ bool shared() const { return at.slot == experts.chosen; }
  __device__ __forceinline__ const FormView& form() const {
    return shared() ? experts.shared_form : phase.gemv.form;
  }
  __device__ __forceinline__ const uint8_t* signs() const {
    return shared() ? experts.shared_signs : phase.signs;
  }
  __device__ __forceinline__ int segment() const {
    return shared() ? experts.shared_segment : phase.segment;
  }
  __device__ __forceinline__ int width() const {
    return at.slot < 0 ? phase.gemv.in.width : shared() ? experts.shared_width : experts.width;
  }
  __device__ __forceinline__ int place(int lane) const {
    return exchange_place(at.first + k_tile * kKTileColumns + lane * kLaneColumns);
  }
  __device__ __forceinline__ int begin() const { return place(0); }
  __device__ __forceinline__ void weigh(Quantized& part) const {
    if (at.slot >= 0) part.scale *= weights[at.slot];
  }
};

// Holds half a k-tile of a router row and of the input, four columns per lane, which other blocks
// write one after the other.
struct RouterUnit {
  const int column, place;

  __device__ __forceinline__ RouterUnit(int unit, int lane)
      : column(unit / 2 * kKTileColumns + lane * kLaneColumns + unit % 2 * 4),
        place(unit * 128 + lane * 4) {}
};

// Holds the two sums that the warps of a block add up for a row of the router.
struct RouterSums {
  // It is that of the row and the input, which has not been divided by its norm.
  float product = 0;
  double squares = 0;  // They are those of the input.

  __device__ __forceinline__ RouterSums over_warp() const {
    RouterSums all{WarpLanes::sum(product), squares};
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      all.squares += __shfl_xor_sync(~0u, all.squares, distance);
    return all;
  }
};

// Multiplies one row by the input. Each warp takes some of the units and returns its sums.
__device__ __forceinline__ RouterSums multiply_row(const RouterPhase& r, const float* row,
                                                   bool here, uint32_t bit, int warp, int lane) {
  constexpr int kAtOnce = 2;
  const int units = (r.width + kKTileColumns - 1) / kKTileColumns * 2;
  RouterSums sums;
#pragma unroll 1
  for (int base = warp; base < units; base += kAtOnce * kProgramWarps) {
    float4 w[kAtOnce], gain[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const RouterUnit unit(base + j * kProgramWarps, lane);
      w[j] = make_float4(0, 0, 0, 0);
      gain[j] = make_float4(1, 1, 1, 1);
      if (unit.column >= r.width) continue;
      w[j] = *reinterpret_cast<const float4*>(row + unit.column);
      if (r.gain) gain[j] = *reinterpret_cast<const float4*>(r.gain + unit.column);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const RouterUnit unit(base + j * kProgramWarps, lane);
      if (unit.column >= r.width) continue;
      float4 x;
      if (here) {
        uint4 v;
        do {
          v = exchanged_words(r.x + unit.place);
        } while ((((v.x ^ bit) | (v.y ^ bit) | (v.z ^ bit) | (v.w ^ bit)) & 1) != 0);
        x = make_float4(__uint_as_float(v.x & ~1u), __uint_as_float(v.y & ~1u),
                        __uint_as_float(v.z & ~1u), __uint_as_float(v.w & ~1u));
      } else {
        x = *reinterpret_cast<const float4*>(r.x + unit.column);
      }
      float& sum = sums.product;
      sum = fmaf(w[j].x, x.x * gain[j].x, sum);
      sum = fmaf(w[j].y, x.y * gain[j].y, sum);
      sum = fmaf(w[j].z, x.z * gain[j].z, sum);
      sum = fmaf(w[j].w, x.w * gain[j].w, sum);
      if (r.gain == nullptr) continue;
      const double v[] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums.squares = fma(v[e], v[e], sums.squares);
    }
  }
  return sums.over_warp();
}

// Computes the logits of this block's experts. Every block finds the norm of the input by itself,
// so that the choice needs nothing but the logits. `sums` has room for the sums of all warps.
__device__ __forceinline__ void multiply_router(const ProgramPhase& phase, uint32_t epoch,
                                                RouterSums* sums, int warp, int lane) {
  const RouterPhase& r = phase.router;
  const uint32_t in_bit = tag_bit(phase.in[0], epoch), out_bit = tag_bit(phase.out[0], epoch);
#pragma unroll 1
  for (int i = last_first(); i < r.rows; i += static_cast<int>(gridDim.x)) {
    const float* row = i < r.experts ? r.weights + int64_t{i} * r.width : r.share;
    const RouterSums sum = multiply_row(r, row, phase.in[0].here != 0, in_bit, warp, lane);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
      const RouterSums all = (lane < kProgramWarps ? sums[lane] : RouterSums{}).over_warp();
      const float times = r.gain ? inverse_norm(all.squares / r.width, r.eps) : 1.0f;
      if (lane == 0) exchange(r.exchange + exchange_place(i), all.product * times, out_bit);
    }
    __syncthreads();
  }
}

// Prefetches this block's first row of the router into the L2 cache. All threads call it.
__device__ __forceinline__ void expect_router(const RouterPhase& r, int thread) {
  const int i = last_first();
  if (i >= r.experts) return;
  constexpr int kLine = 128 / sizeof(float);
  for (int column = thread * kLine; column < r.width; column += kProgramWarps * 32 * kLine)
    expect_line(r.weights + int64_t{i} * r.width + column);
}

// Reads the logits of the row with one warp as they arrive.
__device__ __forceinline__ void read_logits(const ExpertPhase& e, uint32_t bit, Choice& choice,
                                            int lane) {
  constexpr int kAtOnce = 4;
  const int count = e.rule.experts + (e.gates_shared ? 1 : 0);
  float* const logits = choice.logits();
#pragma unroll 1
  for (int first = lane; first < count; first += 32 * kAtOnce) {
    uint32_t word[kAtOnce], missing;
    do {
      missing = 0;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        if (first + 32 * j < count)
          word[j] = exchanged_word(e.logits + exchange_place(first + 32 * j));
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        if (first + 32 * j < count) missing |= (word[j] ^ bit) & 1u;
    } while (missing != 0);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (first + 32 * j < count) logits[first + 32 * j] = __uint_as_float(word[j] & ~1u);
  }
  __syncwarp();
}

// Chooses the experts of the row, with the warp that has read the logits. It is not inlined,
// because its registers would be spilled everywhere else.
template <int MostEach>
__device__ __noinline__ void choose_experts(const ExpertPhase& e, Choice& choice, int lane) {
  const float* const logits = choice.logits();
  route_by_warp<MostEach>(
      e.rule, [&](int i) { return logits[i]; }, e.bias, choice.scratch(e.rule), choice.experts,
      choice.weights);
  if (lane == 0) {
    choice.experts[e.chosen] = 0;
    choice.weights[e.chosen] =
        e.gates_shared ? 1.0f / (1.0f + expf(-logits[e.rule.experts])) : 1.0f;
  }
  __syncwarp();
}

// Computes the work of a warp in a product of the chosen experts as find_work does, but within the
// matrices of expert 0.
template <typename Codes>
__device__ __forceinline__ void find_expert_work(const ProgramPhase& phase, const ExpertPhase& e,
                                                 int warp, PhaseWork& work) {
  StreamPiece* const pieces = work.piece[warp];
  TileRound r = tiles_of_block<Codes::kSeveral>(phase);
  r.share(warp, kProgramWarps);
  const int tile = divide(r.begin, r.k_tiles);
  work.run[warp] = {tile, r.begin - tile * r.k_tiles, r.end - r.begin};
  const int end = r.first * r.k_tiles + r.end;
  int count = 0;
#pragma unroll 1
  for (int at = r.first * r.k_tiles + r.begin; at < end;) {
    const ExpertRun run = expert_run(e, at, end);
    const TileSet& set = phase.gemv.set[run.set];
    StreamArrays of{set.codes, set.scales, set.offsets};
    if (run.slot == e.chosen) {
      const ExpertPhase::Arrays& shared = e.shared[run.set];
      of = {shared.codes, shared.scales, shared.offsets};
    }
    pieces[count].slot = static_cast<uint8_t>(run.slot);
    place_piece<Codes>(phase, run.set, of, run.first, run.count, pieces[count++]);
    at += run.count;
  }
  if (count == 0) pieces[count++].count = 0;
  pieces[count - 1].last = 1;
}

// Moves that work to the chosen experts.
__device__ __forceinline__ void move_expert_work(const ExpertPhase& e, const Choice& choice,
                                                 int warp, PhaseWork& work) {
  StreamPiece* piece = work.piece[warp];
#pragma unroll 1
  for (bool last = false; !last; ++piece) {
    last = piece->last != 0;
    if (piece->count == 0 || piece->slot == e.chosen) continue;
    const int64_t bytes = choice.experts[piece->slot] * e.stride;
    piece->codes += bytes / static_cast<int64_t>(sizeof(uint4));
    piece->scales += bytes;
    piece->offsets += bytes;
  }
}

}  // namespace walsh::cuda
