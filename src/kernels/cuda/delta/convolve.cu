// Computes the short convolution of recurrent layers for several rows of a sequence: in delta nets
// with the operations after it (silu, norms of queries and keys, decays and strengths), else
// between two gates, for single rows as well.
#include <string>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/delta/channels.cuh"
#include "kernels/cuda/launch.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kKeepThreads = 256;

// These say what is convolved: the channels of a delta net, or what goes through the gate in front.
__device__ __forceinline__ int taps_of(const ConvolveCall& call) {
  return call.dims.taps;
}
__device__ __forceinline__ int channels_of(const ConvolveCall& call) {
  return call.dims.channels();
}
__device__ __forceinline__ float input_of(const ConvolveCall& call, int64_t at) {
  return call.in[at];
}
__device__ __forceinline__ int taps_of(const GatedConvolveCall& call) {
  return call.taps;
}
__device__ __forceinline__ int channels_of(const GatedConvolveCall& call) {
  return call.channels;
}
__device__ __forceinline__ float input_of(const GatedConvolveCall& call, int64_t at) {
  return call.in[at] * call.before[at];
}

// Finds a row of the batch and the rows before it in its sequence.
template <typename Call>
struct Row {
  int64_t row;
  int position, in_front;
  const float* kept;  // The sequence's slot has kept these rows.

  __device__ Row(const Call& call, int64_t index)
      : row(index),
        position(call.places.positions[index]),
        in_front(rows_in_front(call.places.sequences, index, taps_of(call) - 1)),
        kept(call.memory.slots + call.places.sequences[index] * call.memory.slot_floats +
             call.memory.rows_at) {}

  // Returns the channel's value `back` rows earlier.
  __device__ __forceinline__ float value(const Call& call, int channel, int back) const {
    const TapSource from = tap_source(back, in_front, position, taps_of(call));
    const int64_t channels = channels_of(call);
    if (from.back >= 0) return input_of(call, (row - from.back) * channels + channel);
    return from.kept >= 0 ? kept[from.kept * channels + channel] : 0.0f;
  }

  // Returns the sum of a channel's last values, weighted by weights[taps][channels].
  __device__ __forceinline__ float convolve(const Call& call, const float* weights,
                                            int channel) const {
    const int taps = taps_of(call);
    const int64_t channels = channels_of(call);
    float sum = 0;
#pragma unroll 4
    for (int t = 0; t < taps; ++t)
      sum += weights[t * channels + channel] * value(call, channel, taps - 1 - t);
    return sum;
  }
};

__device__ __forceinline__ void finish_scalars(const ConvolveCall& call, int64_t row, int head) {
  const int64_t at = row * call.dims.value_heads + head;
  const HeadFactors factors =
      head_factors(call, call.decay[at], call.strength[at], call.bias[head], call.rate[head]);
  call.decay[at] = factors.log_decay;
  call.strength[at] = factors.strength;
}

// Convolves some channels of a row. The grid spans groups of channels in x, and rows in y.
__global__ void __launch_bounds__(kWarps * 32)
    convolve_kernel(const __grid_constant__ ConvolveCall call) {
  allow_next_kernel();
  wait_previous_kernel();
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int number = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (number >= channel_groups(call.dims)) return;
  const ChannelGroup group = channel_group(call.dims, number);
  const int64_t index = blockIdx.y;
  if (is_single(call.places.sequences, index, call.m)) return;
  if (group.kind == ChannelGroup::Kind::scalars) {
    if (lane < group.size) finish_scalars(call, index, group.first + lane);
    return;
  }
  const Row<ConvolveCall> row(call, index);
  float v[kHeadLane] = {};
#pragma unroll
  for (int j = 0; j < kHeadLane; ++j) {
    if (lane + 32 * j >= group.size) continue;
    const int channel = group.first + lane + 32 * j;
    const float bias = call.channel_bias != nullptr ? call.channel_bias[channel] : 0.0f;
    v[j] = silu_of(row.convolve(call, call.taps, channel) + bias);
  }
  if (group.kind != ChannelGroup::Kind::value && !call.dims.additive) {
    const bool query = group.kind == ChannelGroup::Kind::query;
    scale_head(v, group.size, query ? call.query_scale : call.key_scale, lane);
  }
  float* out = call.out + index * call.dims.channels() + group.first;
#pragma unroll
  for (int j = 0; j < kHeadLane; ++j)
    if (lane + 32 * j < group.size) out[lane + 32 * j] = v[j];
}

// The grid spans channels in x, a thread each, and rows in y. A row that is the only one of its
// sequence is kept here: only its own thread reads and writes the entries of a channel.
__global__ void __launch_bounds__(kKeepThreads)
    gated_kernel(const __grid_constant__ GatedConvolveCall call) {
  allow_next_kernel();
  wait_previous_kernel();
  const int channel = static_cast<int>(blockIdx.x) * kKeepThreads + static_cast<int>(threadIdx.x);
  if (channel >= call.channels) return;
  const int64_t index = blockIdx.y, at = index * call.channels + channel;
  const Row<GatedConvolveCall> row(call, index);
  const float bias = call.bias != nullptr ? call.bias[channel] : 0.0f;
  call.out[at] = call.after[at] * (row.convolve(call, call.weights, channel) + bias);
  if (!is_single(call.places.sequences, index, call.m)) return;
  float* kept = call.memory.slots + call.places.sequences[index] * call.memory.slot_floats +
                call.memory.rows_at;
  kept[int64_t{kept_place(row.position, call.taps)} * call.channels + channel] = input_of(call, at);
}

// A thread works on one channel. Slot entries that other blocks read are only rewritten with the
// value they hold, because the ring has one entry more than a step reads.
template <typename Call>
__global__ void __launch_bounds__(kKeepThreads)
    keep_kernel(const __grid_constant__ Call call, int64_t index, int64_t slot) {
  allow_next_kernel();
  wait_previous_kernel();
  const int channel = static_cast<int>(blockIdx.x) * kKeepThreads + static_cast<int>(threadIdx.x);
  const int64_t channels = channels_of(call);
  if (channel >= channels) return;
  const Row<Call> row(call, index);
  float* to = call.memory.slots + slot * call.memory.slot_floats + call.memory.rows_at;
  const int taps = taps_of(call);
  for (int back = 0; back < taps - 1 && back <= row.position; ++back)
    to[kept_place(row.position - back, taps) * channels + channel] = row.value(call, channel, back);
}

template <typename Call>
void keep_rows(const Call& call, int channels, int64_t row, int64_t slot, Stream stream) {
  launch("convolution's rows", keep_kernel<Call>,
         {dim3(static_cast<unsigned>((channels + kKeepThreads - 1) / kKeepThreads)),
          dim3(kKeepThreads)},
         stream, call, row, slot);
}

}  // namespace

void check_delta(const DeltaDims& d) {
  const auto known = [](int dim) { return dim > 0 && dim % 16 == 0 && dim <= kMostDeltaDim; };
  if (d.key_heads > 0 && d.value_heads > 0 && d.value_heads % d.key_heads == 0 &&
      known(d.key_dim) && known(d.value_dim) && d.taps >= 2 && d.taps <= kMostTaps) {
    return;
  }
  throw Error(ErrorCode::internal, "GPU delta net",
              std::to_string(d.value_heads) + " heads of " + std::to_string(d.key_dim) + " and " +
                  std::to_string(d.value_dim) + " values, " + std::to_string(d.taps) + " taps");
}

void convolve(const ConvolveCall& call, Stream stream) {
  if (call.m == 0) return;
  check_delta(call.dims);
  const int groups = channel_groups(call.dims);
  launch(
      "convolution", convolve_kernel,
      {dim3(static_cast<unsigned>((groups + kWarps - 1) / kWarps), static_cast<unsigned>(call.m)),
       dim3(kWarps * 32)},
      stream, call);
}

void keep_convolved(const ConvolveCall& call, int64_t row, int64_t slot, Stream stream) {
  keep_rows(call, call.dims.channels(), row, slot, stream);
}

void convolve(const GatedConvolveCall& call, Stream stream) {
  if (call.m == 0) return;
  if (call.channels <= 0 || call.taps < 1) {
    throw Error(
        ErrorCode::internal, "GPU short convolution",
        std::to_string(call.channels) + " channels, " + std::to_string(call.taps) + " taps");
  }
  launch("gated convolution", gated_kernel,
         {dim3(static_cast<unsigned>((call.channels + kKeepThreads - 1) / kKeepThreads),
               static_cast<unsigned>(call.m)),
          dim3(kKeepThreads)},
         stream, call);
}

void keep_convolved(const GatedConvolveCall& call, int64_t row, int64_t slot, Stream stream) {
  keep_rows(call, call.channels, row, slot, stream);
}

}  // namespace walsh::cuda
