// Computes one row of a delta net, of which a block takes some columns of the state of one value
// head. Single launches (delta_steps.cu) and the persistent kernel, whose blocks have other numbers
// of threads, share it.
#pragma once

#include "kernels/cuda/delta/channels.cuh"

namespace walsh::cuda {

// Describes a block for key dimensions up to Dim. It has `Groups` groups of threads, with one
// thread per column in each, which share the rows of the state.
template <int Dim, int Groups>
struct DeltaStepShape {
  static constexpr int kThreads = Groups * kDeltaColumns;
  // A thread has this many rows of the state.
  static constexpr int kRows = Dim / Groups;
  // The convolution has this many channels.
  static constexpr int kChannels = 2 * Dim + kDeltaColumns;
  // A thread has this many channels.
  static constexpr int kEach = (kChannels + kThreads - 1) / kThreads;
};

// Points to some columns of a value head's state. Slot `slot` holds it as of position - 1.
struct DeltaPlace {
  int head, first_column, lane, group;
  int position;
  float* slot;

  __device__ int column() const { return first_column + lane; }
};

// Holds a channel of the convolution. A block convolves the queries and keys of its head and the
// values of its columns; the first block that has a channel stores its new value.
struct DeltaChannel {
  int channel = -1;
  bool keeps = false;
  // Hold the sum over earlier rows, and the factor of the row's own value.
  float sum = 0, newest = 0;

  // Finds channel number `i` of the block, in the order queries, keys, values.
  __device__ __forceinline__ void find(const DeltaDims& d, const DeltaPlace& p, int i) {
    const bool first = p.first_column == 0 && p.head % d.group() == 0;
    if (i < 2 * d.key_dim) {
      channel = i < d.key_dim ? d.query_of(p.head) + i : d.key_of(p.head) + i - d.key_dim;
      keeps = first;
    } else if (i < 2 * d.key_dim + kDeltaColumns) {
      const int column = p.first_column + i - 2 * d.key_dim;
      if (column >= d.value_dim) return;
      channel = d.value_of(p.head) + column;
      keeps = true;
    }
  }

  __device__ __forceinline__ void begin(const ConvolveCall& call, const DeltaPlace& p) {
    if (channel < 0) return;
    const int64_t channels = call.dims.channels();
    const int taps = call.dims.taps;
    const float* kept = p.slot + call.memory.rows_at + channel;
    const float* factors = call.taps + channel;
    if (call.channel_bias != nullptr) sum = call.channel_bias[channel];
#pragma unroll 4
    for (int t = 0; t + 1 < taps; ++t) {
      const int back = taps - 1 - t;
      const float x =
          back <= p.position ? kept[kept_place(p.position - back, taps) * channels] : 0.0f;
      sum += factors[t * channels] * x;
    }
    newest = factors[(taps - 1) * channels];
  }

  // Finishes the convolution of a channel; `x` is the row's own value.
  __device__ __forceinline__ float finish(const ConvolveCall& call, const DeltaPlace& p, float x) {
    if (channel < 0) return 0;
    const int64_t channels = call.dims.channels();
    const int place = kept_place(p.position, call.dims.taps);
    if (keeps) p.slot[call.memory.rows_at + place * channels + channel] = x;
    sum += newest * x;
    return silu_of(sum);
  }
};

// Applies the norms to the block's query and key, one warp each. An additive net has no such norms.
__device__ __forceinline__ void scale_heads(const ConvolveCall& call, float* channels, int warp,
                                            int lane) {
  if (warp > 1 || call.dims.additive) return;
  const int size = call.dims.key_dim;
  float* head = channels + warp * size;
  float v[kHeadLane];
#pragma unroll
  for (int j = 0; j < kHeadLane; ++j)
    v[j] = lane + 32 * j < size ? head[lane + 32 * j] : 0.0f;
  scale_head(v, size, warp == 0 ? call.query_scale : call.key_scale, lane);
#pragma unroll
  for (int j = 0; j < kHeadLane; ++j)
    if (lane + 32 * j < size) head[lane + 32 * j] = v[j];
}

// Returns the sum of a column's parts to all threads of the column.
template <int Groups>
__device__ __forceinline__ float sum_groups(float (*parts)[kDeltaColumns], float x, int column,
                                            int group) {
  __syncthreads();  // Earlier sums have been read.
  parts[group][column] = x;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int g = 0; g < Groups; ++g)
    sum += parts[g][column];
  return sum;
}

// Holds a thread's rows of a column of the state.
template <int Dim, int Groups>
class DeltaColumn {
  static constexpr int kRows = DeltaStepShape<Dim, Groups>::kRows;

 public:
  // Loads the rows, or sets them to zeros at the start of a sequence.
  __device__ __forceinline__ DeltaColumn(const ConvolveCall& call, const DeltaPlace& p)
      : d_(call.dims),
        p_(p),
        inside_(p.column() < d_.value_dim),
        state_(p.slot + call.memory.states_at + int64_t{p.head} * d_.key_dim * d_.value_dim +
               p.column()) {
    const bool fresh = p.position == 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      s_[i] = row(i) < d_.key_dim && inside_ && !fresh ? *place(i) : 0.0f;
  }

  __device__ bool inside() const {
    return inside_;
  }

  // Applies decay and update. Returns what the query reads from the column, to all of its threads.
  // `channels` has the block's query, key and values after the convolution.
  __device__ __forceinline__ float step(const float* channels, float decay, float strength,
                                        float (*parts)[kDeltaColumns]) {
    const float *q = channels, *k = channels + d_.key_dim, *v = channels + 2 * d_.key_dim;
    float seen = 0, result = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      s_[i] *= decay;
      if (row(i) < d_.key_dim) seen = fmaf(k[row(i)], s_[i], seen);
    }
    // Updates of an additive net do not depend on the state.
    seen = d_.additive ? 0.0f : sum_groups<Groups>(parts, seen, p_.lane, p_.group);
    const float update = strength * (v[p_.lane] - seen);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (row(i) >= d_.key_dim) continue;
      s_[i] = fmaf(k[row(i)], update, s_[i]);
      result = fmaf(q[row(i)], s_[i], result);
      if (inside_) *place(i) = s_[i];
    }
    return sum_groups<Groups>(parts, result, p_.lane, p_.group);
  }

 private:
  __device__ __forceinline__ int row(int i) const {
    return p_.group + Groups * i;
  }
  __device__ __forceinline__ float* place(int i) const {
    return state_ + int64_t{row(i)} * d_.value_dim;
  }

  const DeltaDims& d_;
  const DeltaPlace& p_;
  const bool inside_;
  float* const state_;
  float s_[kRows];
};

}  // namespace walsh::cuda
