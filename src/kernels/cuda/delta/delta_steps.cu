// Computes single rows of delta nets, which is bound by reading and writing the states. A block
// convolves the channels that it needs, then applies the delta rule.
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/delta/delta_step.cuh"
#include "kernels/cuda/launch.h"

namespace walsh::cuda {
namespace {

constexpr int kGroups = 8;
constexpr int kThreads = kGroups * kDeltaColumns;

__device__ __forceinline__ DeltaPlace place_of_block(const ConvolveCall& call, int64_t row) {
  return {static_cast<int>(blockIdx.y),
          static_cast<int>(blockIdx.x) * kDeltaColumns,
          static_cast<int>(threadIdx.x) % kDeltaColumns,
          static_cast<int>(threadIdx.x) / kDeltaColumns,
          call.places.positions[row],
          call.memory.slots + call.places.sequences[row] * call.memory.slot_floats};
}

// Computes some columns of a state for one row. The grid spans columns of a state in x, value heads
// in y, and rows in z.
template <int Dim>
__global__ void __launch_bounds__(kThreads)
    step_kernel(const __grid_constant__ ConvolveCall call, float* mixed, int64_t first) {
  using Shape = DeltaStepShape<Dim, kGroups>;
  __shared__ float channels[Shape::kChannels], parts[kGroups][kDeltaColumns];
  allow_next_kernel();
  // Nothing before the wait depends on results of this batch.
  const DeltaDims& d = call.dims;
  const int64_t row = first + blockIdx.z;
  const DeltaPlace p = place_of_block(call, row);
  const int thread = static_cast<int>(threadIdx.x);
  DeltaColumn<Dim, kGroups> column(call, p);
  DeltaChannel own[Shape::kEach];
#pragma unroll
  for (int e = 0; e < Shape::kEach; ++e) {
    own[e].find(d, p, thread + e * kThreads);
    own[e].begin(call, p);
  }
  const float bias = call.bias[p.head], rate = call.rate[p.head];
  wait_previous_kernel();
  const int64_t scalar = row * d.value_heads + p.head;
  const float a = call.decay[scalar], b = call.strength[scalar];
#pragma unroll
  for (int e = 0; e < Shape::kEach; ++e) {
    const int channel = own[e].channel;
    const float x = channel < 0 ? 0 : call.in[row * d.channels() + channel];
    const float convolved = own[e].finish(call, p, x);
    if (thread + e * kThreads < Shape::kChannels) channels[thread + e * kThreads] = convolved;
  }
  const HeadFactors factors = head_factors(call, a, b, bias, rate);
  __syncthreads();
  scale_heads(call, channels, p.group, p.lane);
  __syncthreads();
  float result = column.step(channels, expf(factors.log_decay), factors.strength, parts);
  if (call.skip != nullptr) result += call.skip[p.head] * channels[2 * d.key_dim + p.lane];
  if (p.group == 0 && column.inside())
    mixed[row * d.value_width() + p.head * d.value_dim + p.column()] = result;
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
