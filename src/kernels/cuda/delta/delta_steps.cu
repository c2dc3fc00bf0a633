// The delta rule of single rows, bound by reading and writing the states; gates of what mixers
// give.
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/delta/delta.h"
#include "kernels/cuda/launch.h"

namespace walsh::cuda {
namespace {

constexpr int kGroups = 8;  // of threads that share the rows of a state's columns
constexpr int kThreads = kGroups * kDeltaColumns;
constexpr int kMostRows = kMostDeltaDim / kGroups;
constexpr int kGateWarps = 4;
constexpr int kSplitThreads = 256;

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
__global__ void __launch_bounds__(kThreads)
    step_kernel(const __grid_constant__ DeltaCall call, int64_t first) {
  __shared__ float q[kMostDeltaDim], k[kMostDeltaDim], parts[kGroups][kDeltaColumns];
  allow_next_kernel();
  wait_previous_kernel();
  const DeltaDims& d = call.dims;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kDeltaColumns, group = thread / kDeltaColumns;
  const int column = static_cast<int>(blockIdx.x) * kDeltaColumns + lane;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t row = first + blockIdx.z;
  const float* x = call.channels + row * d.channels();
  if (thread < d.key_dim) {
    q[thread] = x[d.query_of(head) + thread];
    k[thread] = x[d.key_of(head) + thread];
  }
  const bool inside = column < d.value_dim;
  const bool fresh = call.places.positions[row] == 0;
  float* state = call.memory.slots + call.places.sequences[row] * call.memory.slot_floats +
                 call.memory.states_at + int64_t{head} * d.key_dim * d.value_dim + column;
  const float decay = expf(call.decay[row * d.value_heads + head]);
  const float strength = call.strength[row * d.value_heads + head];
  __syncthreads();
  float s[kMostRows], seen = 0, result = 0;
#pragma unroll
  for (int i = 0; i < kMostRows; ++i) {
    const int r = group + kGroups * i;
    const bool present = r < d.key_dim && inside && !fresh;
    s[i] = present ? state[int64_t{r} * d.value_dim] * decay : 0.0f;
    if (r < d.key_dim) seen = fmaf(k[r], s[i], seen);
  }
  seen = sum_groups(parts, seen, lane, group);
  const float value = inside ? x[d.value_of(head) + column] : 0.0f;
  const float update = strength * (value - seen);
#pragma unroll
  for (int i = 0; i < kMostRows; ++i) {
    const int r = group + kGroups * i;
    if (r >= d.key_dim) continue;
    s[i] = fmaf(k[r], update, s[i]);
    result = fmaf(q[r], s[i], result);
    if (inside) state[int64_t{r} * d.value_dim] = s[i];
  }
  result = sum_groups(parts, result, lane, group);
  if (group == 0 && inside) call.out[row * d.value_width() + head * d.value_dim + column] = result;
}

// A warp per row and head.
__global__ void __launch_bounds__(kGateWarps * 32)
    gate_kernel(const __grid_constant__ GateMixedCall call) {
  allow_next_kernel();
  wait_previous_kernel();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int head = static_cast<int>(blockIdx.x) * kGateWarps + static_cast<int>(threadIdx.x / 32);
  if (head >= call.heads) return;
  const int64_t first = (int64_t{blockIdx.y} * call.heads + head) * call.dim;
  float* x = call.x + first;
  const float* gate = call.gate + first;
  if (call.gain == nullptr) {
    for (int i = lane; i < call.dim; i += 32)
      x[i] = x[i] / (1.0f + expf(-gate[i]));
    return;
  }
  double sum = 0;
  for (int i = lane; i < call.dim; i += 32)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  const auto inverse =
      static_cast<float>(1.0 / sqrt(sum / call.dim + static_cast<double>(call.eps)));
  for (int i = lane; i < call.dim; i += 32) {
    const float normed = x[i] * inverse * call.gain[i];
    x[i] = gate[i] / (1.0f + expf(-gate[i])) * normed;
  }
}

__global__ void __launch_bounds__(kSplitThreads)
    split_kernel(const float* from, int64_t count, int dim, float* q, float* gate) {
  allow_next_kernel();
  wait_previous_kernel();
  const int64_t i = int64_t{blockIdx.x} * kSplitThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t head = i / dim, at = 2 * head * dim + (i - head * dim);
  q[i] = from[at];
  gate[i] = from[at + dim];
}

}  // namespace

void delta_steps(const DeltaCall& call, int64_t begin, int64_t end, Stream stream) {
  if (begin >= end) return;
  check_delta(call.dims);
  const DeltaDims& d = call.dims;
  launch("delta rule", step_kernel,
         {dim3(static_cast<unsigned>((d.value_dim + kDeltaColumns - 1) / kDeltaColumns),
               static_cast<unsigned>(d.value_heads), static_cast<unsigned>(end - begin)),
          dim3(kThreads)},
         stream, call, begin);
}

void gate_mixed(const GateMixedCall& call, Stream stream) {
  if (call.m == 0) return;
  launch("gated heads", gate_kernel,
         {dim3(static_cast<unsigned>((call.heads + kGateWarps - 1) / kGateWarps),
               static_cast<unsigned>(call.m)),
          dim3(kGateWarps * 32)},
         stream, call);
}

void split_gates(const float* from, int64_t m, int heads, int dim, float* q, float* gate,
                 Stream stream) {
  const int64_t count = m * heads * dim;
  if (count == 0) return;
  launch("gates of queries", split_kernel,
         {dim3(static_cast<unsigned>((count + kSplitThreads - 1) / kSplitThreads)),
          dim3(kSplitThreads)},
         stream, from, count, dim, q, gate);
}

}  // namespace walsh::cuda
