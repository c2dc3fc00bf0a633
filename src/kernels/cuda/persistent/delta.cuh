// Computes a step of a delta net as a phase (delta/delta_step.cuh). The state of every head is
// divided into pieces of 32 columns, which all blocks share.
//
// Data that no phase writes is requested first: the state, the rows kept for the convolution, the
// weights of decay and strength. These weights are one float32 row each per head, so the blocks of
// a head multiply them themselves; the input has been there since the product in front. The gates
// arrive together with the channels and are applied here. Only the norm of a head needs the other
// pieces; a piece therefore writes the sum of its squares beside its results, and the block that
// makes the input of the next product divides by the norm.
#pragma once

#include "kernels/cuda/delta/delta_step.cuh"
#include "kernels/cuda/experts/warp_lanes.cuh"
#include "kernels/cuda/persistent/exchange.cuh"

namespace walsh::cuda {

// Holds the tags of a delta phase in this launch.
struct DeltaBits {
  uint32_t channels, gates, x, out, squares;
  bool x_here;
};

__device__ __forceinline__ DeltaBits delta_bits_of(const ProgramPhase& phase, uint32_t epoch) {
  return {tag_bit(phase.in[0], epoch),  tag_bit(phase.in[1], epoch),  tag_bit(phase.in[2], epoch),
          tag_bit(phase.out[0], epoch), tag_bit(phase.out[1], epoch), phase.in[2].here != 0};
}

// Waits for value `i` of an exchanged array. It was read once already, with the answer `word`.
__device__ __forceinline__ float await_value(const float* all, int i, uint32_t bit, uint32_t word) {
  while ((word & 1) != bit)
    word = exchanged_word(all + exchange_place(i));
  return __uint_as_float(word & ~1u);
}

constexpr int kLineFloats = 32;  // A line of 128 bytes has this many floats.

// Prefetches what the first piece of this block reads from memory. This happens while the product
// in front waits for its input; behind that product's weights, of which there are many, it would
// arrive late.
__device__ __forceinline__ void expect_step(const DeltaPhase& a, int thread) {
  const ConvolveCall& net = a.net;
  const DeltaDims& d = net.dims;
  const int piece = last_first(), head = piece / a.pieces;
  if (head >= d.value_heads) return;
  const int column = (piece - head * a.pieces) * kDeltaColumns;
  const float* slot = net.memory.slots + program_sequence * net.memory.slot_floats;
  const float* state =
      slot + net.memory.states_at + int64_t{head} * d.key_dim * d.value_dim + column;
  constexpr int kThreads = kProgramWarps * 32;
  for (int r = thread; r < d.key_dim; r += kThreads)
    expect_line(state + int64_t{r} * d.value_dim);
  // Starting at the last thread gives all threads about as many lines.
  const int lines = a.width / kLineFloats;
  for (int i = kThreads - 1 - thread; i < 2 * lines; i += kThreads) {
    const float* rows = i < lines ? a.decay_rows : a.strength_rows;
    expect_line(rows + int64_t{head} * a.width + (i < lines ? i : i - lines) * kLineFloats);
  }
}

template <int Dim>
class StepPhase {
  static constexpr int kGroups = kProgramWarps;
  using Shape = DeltaStepShape<Dim, kGroups>;
  static constexpr int kGateWarp = 2;  // The warps before it scale queries and keys.

  // Holds decay and strength of a head, before the constants of the net are applied.
  struct Scalars {
    float a, b;
  };

 public:
  __device__ StepPhase(const DeltaPhase& args, std::byte* memory, const DeltaBits& bits, int warp,
                       int lane)
      : a_(args),
        bits_(bits),
        warp_(warp),
        lane_(lane),
        parts_(reinterpret_cast<float (*)[kDeltaColumns]>(memory)),
        sums_(reinterpret_cast<float*>(memory) + kGroups * kDeltaColumns),
        channels_(sums_ + 3 * kProgramWarps) {}

  // Computes all pieces of this block.
  __device__ __forceinline__ void run() const {
    const int pieces = a_.net.dims.value_heads * a_.pieces;
#pragma unroll 1
    for (int i = last_first(); i < pieces; i += static_cast<int>(gridDim.x)) {
      const int head = i / a_.pieces;
      step(head, i - head * a_.pieces);
      __syncthreads();
    }
  }

 private:
  __device__ __forceinline__ void step(int head, int piece) const {
    const ConvolveCall& net = a_.net;
    const DeltaPlace p{
        head,  piece * kDeltaColumns, lane_,
        warp_, program_row.position,  net.memory.slots + program_sequence * net.memory.slot_floats};
    const int thread = warp_ * 32 + lane_;
    DeltaColumn<Dim, kGroups> column(net, p);
    DeltaChannel own[Shape::kEach];
    uint32_t words[Shape::kEach];
#pragma unroll
    for (int e = 0; e < Shape::kEach; ++e) {
      own[e].find(net.dims, p, thread + e * Shape::kThreads);
      own[e].begin(net, p);
      words[e] = own[e].channel < 0 ? bits_.channels
                                    : exchanged_word(net.in + exchange_place(own[e].channel));
    }
    const int value = head * net.dims.value_dim + p.column();
    const bool gates = warp_ == kGateWarp && column.inside();
    const uint32_t gate_word = gates ? exchanged_word(a_.gates + exchange_place(value)) : 0;
    const Scalars scalars = multiply_scalars(head);
    const float decay = expf(log_decay(scalars.a, net.bias[head], net.rate[head]));
    const float strength = strength_of(scalars.b);
#pragma unroll
    for (int e = 0; e < Shape::kEach; ++e) {
      const float x =
          own[e].channel < 0 ? 0 : await_value(net.in, own[e].channel, bits_.channels, words[e]);
      const float convolved = own[e].finish(net, p, x);
      const int at = thread + e * Shape::kThreads;
      if (at < Shape::kChannels) channels_[at] = convolved;
    }
    __syncthreads();
    scale_heads(net, channels_, warp_, lane_);
    float factor = 0;
    if (gates) {
      const float gate = await_value(a_.gates, value, bits_.gates, gate_word);
      factor = silu_of(gate) * a_.gain[p.column()];
    }
    __syncthreads();
    const float result = column.step(channels_, decay, strength, parts_);
    if (warp_ == kGateWarp) give(head, piece, value, column.inside(), result, factor);
  }

  // Multiplies the input by the decay row and the strength row of a head, with all threads.
  __device__ __forceinline__ Scalars multiply_scalars(int head) const {
    float sums[3] = {};  // They sum up decay, strength, and squares of the input.
    add_scalars(a_.decay_rows + int64_t{head} * a_.width,
                a_.strength_rows + int64_t{head} * a_.width, sums);
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      sums[j] = WarpLanes::sum(sums[j]);
      if (lane_ == 0) sums_[j * kProgramWarps + warp_] = sums[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      sums[j] = 0;
#pragma unroll
      for (int w = 0; w < kProgramWarps; w += 4) {
        const float4 four = *reinterpret_cast<const float4*>(sums_ + j * kProgramWarps + w);
        sums[j] += (four.x + four.y) + (four.z + four.w);
      }
    }
    const float times =
        a_.x_gain ? rsqrtf(sums[2] / static_cast<float>(a_.width) + a_.x_eps) : 1.0f;
    return {sums[0] * times, sums[1] * times};
  }

  // Adds this warp's part of the sums, 128 columns at a time with four per lane, which other blocks
  // write one after the other. All loads are issued before the first value is used.
  __device__ __forceinline__ void add_scalars(const float* decay, const float* strength,
                                              float (&sums)[3]) const {
    constexpr int kAtOnce = 2;
    const int units = (a_.width + 255) / 256 * 2;
#pragma unroll 1
    for (int base = warp_; base < units; base += kAtOnce * kProgramWarps) {
      float4 a[kAtOnce], b[kAtOnce], gain[kAtOnce];
      uint4 x[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int column = column_of(base + j * kProgramWarps);
        a[j] = b[j] = gain[j] = make_float4(1, 1, 1, 1);
        if (column >= a_.width) continue;
        a[j] = *reinterpret_cast<const float4*>(decay + column);
        b[j] = *reinterpret_cast<const float4*>(strength + column);
        if (a_.x_gain) gain[j] = *reinterpret_cast<const float4*>(a_.x_gain + column);
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        x[j] = ask_four(base + j * kProgramWarps);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        while (bits_.x_here && missing(x[j]))
          x[j] = ask_four(base + j * kProgramWarps);
        add(a[j].x, b[j].x, gain[j].x, value_of(x[j].x), sums);
        add(a[j].y, b[j].y, gain[j].y, value_of(x[j].y), sums);
        add(a[j].z, b[j].z, gain[j].z, value_of(x[j].z), sums);
        add(a[j].w, b[j].w, gain[j].w, value_of(x[j].w), sums);
      }
    }
  }

  __device__ __forceinline__ int column_of(int unit) const {
    return unit / 2 * 256 + lane_ * 8 + unit % 2 * 4;
  }

  // Reads four values of the input with their tags. Beyond the end these are zeros that need no
  // waiting.
  __device__ __forceinline__ uint4 ask_four(int unit) const {
    const int column = column_of(unit);
    const uint32_t none = bits_.x_here ? bits_.x : 0;
    if (column >= a_.width) return make_uint4(none, none, none, none);
    if (bits_.x_here) return exchanged_words(a_.x + unit * 128 + lane_ * 4);
    return *reinterpret_cast<const uint4*>(a_.x + column);
  }
  __device__ __forceinline__ float value_of(uint32_t word) const {
    return __uint_as_float(bits_.x_here ? word & ~1u : word);
  }
  __device__ __forceinline__ bool missing(const uint4& v) const {
    return (((v.x ^ bits_.x) | (v.y ^ bits_.x) | (v.z ^ bits_.x) | (v.w ^ bits_.x)) & 1) != 0;
  }

  static __device__ __forceinline__ void add(float a, float b, float gain, float x,
                                             float (&sums)[3]) {
    const float v = x * gain;
    sums[0] = fmaf(a, v, sums[0]);
    sums[1] = fmaf(b, v, sums[1]);
    sums[2] = fmaf(x, x, sums[2]);
  }

  // Publishes the results of a piece, with one warp. The first piece also fills the padding of the
  // head's squares.
  __device__ __forceinline__ void give(int head, int piece, int value, bool inside, float result,
                                       float factor) const {
    if (inside) exchange(a_.exchange + exchange_place(value), result * factor, bits_.out);
    const float squares = WarpLanes::sum(inside ? result * result : 0.0f);
    const int all = squares_of_head(a_.pieces);
    float* const to = a_.squares + head * all;
    if (lane_ == piece) exchange(to + lane_, squares, bits_.squares);
    if (piece == 0 && lane_ >= a_.pieces && lane_ < all) exchange(to + lane_, 0, bits_.squares);
  }

  const DeltaPhase& a_;
  const DeltaBits bits_;
  const int warp_, lane_;
  float (*const parts_)[kDeltaColumns];
  float* const sums_;
  float* const channels_;
};

// Computes the phase. It is not inlined, for the same reason as attention.
template <int Dim>
__device__ __noinline__ void step_phase(const DeltaPhase& args, std::byte* memory, DeltaBits bits) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  StepPhase<Dim>(args, memory, bits, warp, lane).run();
}

}  // namespace walsh::cuda
