// Single rows of delta nets, bound by reading and writing the states: the convolution of the
// channels that a block needs, and the delta rule.
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/delta/channels.cuh"
#include "kernels/cuda/launch.h"

namespace walsh::cuda {
namespace {

constexpr int kGroups = 8;  // of threads that share the rows of a state's columns
constexpr int kThreads = kGroups * kDeltaColumns;

// What a block has where keys are no longer than Dim.
template <int Dim>
struct StepShape {
  static constexpr int kRows = Dim / kGroups;                          // of the state, of a thread
  static constexpr int kChannels = 2 * Dim + kDeltaColumns;            // of the convolution
  static constexpr int kEach = (kChannels + kThreads - 1) / kThreads;  // of a thread
};

// What a block has: some columns of the state of one value head of one row.
struct Place {
  int64_t row;
  int head, first_column, lane, group;
  int position;
  float* slot;

  __device__ Place(const ConvolveCall& call, int64_t first)
      : row(first + blockIdx.z),
        head(static_cast<int>(blockIdx.y)),
        first_column(static_cast<int>(blockIdx.x) * kDeltaColumns),
        lane(static_cast<int>(threadIdx.x) % kDeltaColumns),
        group(static_cast<int>(threadIdx.x) / kDeltaColumns),
        position(call.places.positions[row]),
        slot(call.memory.slots + call.places.sequences[row] * call.memory.slot_floats) {}

  __device__ int column() const { return first_column + lane; }
};

// A channel of the convolution. A block convolves the queries and keys of its head and the values
// of its columns; the first block that has a channel keeps its new value.
struct Channel {
  int channel = -1;
  bool keeps = false;
  float sum = 0, newest = 0;  // over what came before the row; the factor of the row's own value

  // Channel number `i` of the block: queries, keys, values.
  __device__ __forceinline__ void find(const DeltaDims& d, const Place& p, int i) {
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

  __device__ __forceinline__ void begin(const ConvolveCall& call, const Place& p) {
    if (channel < 0) return;
    const int64_t channels = call.dims.channels();
    const int taps = call.dims.taps;
    const float* kept = p.slot + call.memory.rows_at + channel;
    const float* factors = call.taps + channel;
#pragma unroll 4
    for (int t = 0; t + 1 < taps; ++t) {
      const int back = taps - 1 - t;
      const float x =
          back <= p.position ? kept[kept_place(p.position - back, taps) * channels] : 0.0f;
      sum += factors[t * channels] * x;
    }
    newest = factors[(taps - 1) * channels];
  }

  __device__ __forceinline__ float finish(const ConvolveCall& call, const Place& p) {
    if (channel < 0) return 0;
    const int64_t channels = call.dims.channels();
    const float x = call.in[p.row * channels + channel];
    const int place = kept_place(p.position, call.dims.taps);
    if (keeps) p.slot[call.memory.rows_at + place * channels + channel] = x;
    sum += newest * x;
    return silu_of(sum);
  }
};

// Lengths of the block's query and key, a warp each.
__device__ __forceinline__ void scale_heads(const ConvolveCall& call, float* channels, int warp,
                                            int lane) {
  if (warp > 1) return;
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

// The sum of a column's parts, in all threads of the column.
__device__ __forceinline__ float sum_groups(float (&parts)[kGroups][kDeltaColumns], float x,
                                            int column, int group) {
  __syncthreads();  // the sums before have been read
  parts[group][column] = x;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
    sum += parts[g][column];
  return sum;
}

// Grid: x over columns of a state, y over value heads, z over rows.
template <int Dim>
__global__ void __launch_bounds__(kThreads)
    step_kernel(const __grid_constant__ ConvolveCall call, float* mixed, int64_t first) {
  using Shape = StepShape<Dim>;
  __shared__ float channels[Shape::kChannels], parts[kGroups][kDeltaColumns];
  allow_next_kernel();
  // Nothing of what this batch computes is read up to the wait.
  const DeltaDims& d = call.dims;
  const Place p(call, first);
  const int thread = static_cast<int>(threadIdx.x), column = p.column();
  const bool inside = column < d.value_dim, fresh = p.position == 0;
  float* state =
      p.slot + call.memory.states_at + int64_t{p.head} * d.key_dim * d.value_dim + column;
  float s[Shape::kRows];
#pragma unroll
  for (int i = 0; i < Shape::kRows; ++i) {
    const int r = p.group + kGroups * i;
    s[i] = r < d.key_dim && inside && !fresh ? state[int64_t{r} * d.value_dim] : 0.0f;
  }
  Channel own[Shape::kEach];
#pragma unroll
  for (int e = 0; e < Shape::kEach; ++e) {
    own[e].find(d, p, thread + e * kThreads);
    own[e].begin(call, p);
  }
  const float bias = call.bias[p.head], rate = call.rate[p.head];
  wait_previous_kernel();
  const int64_t scalar = p.row * d.value_heads + p.head;
  const float a = call.decay[scalar], b = call.strength[scalar];
#pragma unroll
  for (int e = 0; e < Shape::kEach; ++e) {
    const float x = own[e].finish(call, p);
    if (thread + e * kThreads < Shape::kChannels) channels[thread + e * kThreads] = x;
  }
  const float decay = expf(log_decay(a, bias, rate)), strength = strength_of(b);
  __syncthreads();
  scale_heads(call, channels, p.group, p.lane);
  __syncthreads();
  const float *q = channels, *k = channels + d.key_dim, *v = channels + 2 * d.key_dim;
  float seen = 0, result = 0;
#pragma unroll
  for (int i = 0; i < Shape::kRows; ++i) {
    const int r = p.group + kGroups * i;
    s[i] *= decay;
    if (r < d.key_dim) seen = fmaf(k[r], s[i], seen);
  }
  seen = sum_groups(parts, seen, p.lane, p.group);
  const float update = strength * (v[p.lane] - seen);
#pragma unroll
  for (int i = 0; i < Shape::kRows; ++i) {
    const int r = p.group + kGroups * i;
    if (r >= d.key_dim) continue;
    s[i] = fmaf(k[r], update, s[i]);
    result = fmaf(q[r], s[i], result);
    if (inside) state[int64_t{r} * d.value_dim] = s[i];
  }
  result = sum_groups(parts, result, p.lane, p.group);
  if (p.group == 0 && inside)
    mixed[p.row * d.value_width() + p.head * d.value_dim + column] = result;
}

}  // namespace

void delta_steps(const ConvolveCall& call, float* mixed, int64_t begin, int64_t end,
                 Stream stream) {
  if (begin >= end) return;
  check_delta(call.dims);
  const DeltaDims& d = call.dims;
  launch("delta rule", d.key_dim <= 128 ? step_kernel<128> : step_kernel<kMostDeltaDim>,
         {dim3(static_cast<unsigned>((d.value_dim + kDeltaColumns - 1) / kDeltaColumns),
               static_cast<unsigned>(d.value_heads), static_cast<unsigned>(end - begin)),
          dim3(kThreads)},
         stream, call, mixed, begin);
}

}  // namespace walsh::cuda
