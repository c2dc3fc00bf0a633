// Adds a branch to the residual stream, applies norms to whole rows, takes their mean away, and
// gathers rows of the stream. A block works on one row.
#include <limits>
#include <string>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/rows.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;

// Returns the sum of of_value(x) over the values x of a row to all threads of the block.
template <typename OfValue>
__device__ __forceinline__ double row_sum(const float* row, int64_t width,
                                          const OfValue& of_value) {
  __shared__ double parts[kWarps];
  double sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < width; i += kThreads)
    sum += of_value(static_cast<double>(row[i]));
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  double total = 0;
#pragma unroll
  for (const double part : parts)
    total += part;
  return total;
}

// Returns 1 / rms of a row to all threads of the block.
__device__ float inverse_rms(const float* row, int64_t width, float eps) {
  const double squares = row_sum(row, width, [](double x) { return x * x; });
  return static_cast<float>(1.0 /
                            sqrt(squares / static_cast<double>(width) + static_cast<double>(eps)));
}

__global__ void __launch_bounds__(kThreads) branch_kernel(const __grid_constant__ BranchCall call) {
  allow_next_kernel();
  wait_previous_kernel();
  const int64_t first = blockIdx.x * call.width;
  const float* __restrict__ branch = call.branch + first;
  const float* __restrict__ gain = call.gain;
  float* __restrict__ x = call.x + first;
  const float factor = call.factor == nullptr ? 1.0f : *call.factor;
  if (gain == nullptr) {
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < call.width; i += kThreads)
      x[i] = factor * (x[i] + call.scale * branch[i]);
    return;
  }
  const float inverse = inverse_rms(branch, call.width, call.eps);
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < call.width; i += kThreads)
    x[i] = factor * (x[i] + call.scale * (branch[i] * inverse * gain[i]));
}

__global__ void __launch_bounds__(kThreads)
    norm_kernel(float* rows, int64_t width, const float* gain, float eps) {
  allow_next_kernel();
  wait_previous_kernel();
  float* x = rows + blockIdx.x * width;
  const float inverse = inverse_rms(x, width, eps);
  __syncthreads();  // All threads have read what some of them write.
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < width; i += kThreads)
    x[i] = x[i] * inverse * gain[i];
}

__global__ void __launch_bounds__(kThreads) center_kernel(float* rows, int64_t width) {
  allow_next_kernel();
  wait_previous_kernel();
  float* x = rows + blockIdx.x * width;
  const double sum = row_sum(x, width, [](double v) { return v; });
  const auto mean = static_cast<float>(sum / static_cast<double>(width));
  __syncthreads();  // all threads have read what some of them write
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < width; i += kThreads)
    x[i] -= mean;
}

__global__ void __launch_bounds__(kThreads)
    gather_kernel(const float* x, int64_t width, const int32_t* rows, float* out) {
  allow_next_kernel();
  wait_previous_kernel();
  const float* from = x + rows[blockIdx.x] * width;
  float* to = out + blockIdx.x * width;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < width; i += kThreads)
    to[i] = from[i];
}

__global__ void __launch_bounds__(kThreads)
    copy_kernel(const float* x, int64_t ldx, int64_t width, float* out) {
  allow_next_kernel();
  wait_previous_kernel();
  const float* from = x + blockIdx.x * ldx;
  float* to = out + blockIdx.x * width;
  for (int64_t i = threadIdx.x; i < width; i += kThreads)
    to[i] = from[i];
}

}  // namespace

void copy_rows(const float* x, int64_t ldx, int64_t m, int64_t width, float* out, Stream stream) {
  if (m == 0) return;
  const LaunchShape shape{dim3(static_cast<unsigned>(m)), dim3(kThreads)};
  launch("copied rows", copy_kernel, shape, stream, x, ldx, width, out);
}

void norm_rows(float* x, int64_t m, int64_t width, const float* gain, float eps, Stream stream) {
  if (m == 0) return;
  const LaunchShape shape{dim3(static_cast<unsigned>(m)), dim3(kThreads)};
  launch("normed rows", norm_kernel, shape, stream, x, width, gain, eps);
}

void center_rows(float* x, int64_t m, int64_t width, Stream stream) {
  if (m == 0) return;
  const LaunchShape shape{dim3(static_cast<unsigned>(m)), dim3(kThreads)};
  launch("centered rows", center_kernel, shape, stream, x, width);
}

void gather_rows(const float* x, int64_t width, const int32_t* rows, int64_t m, float* out,
                 Stream stream) {
  if (m == 0) return;
  const LaunchShape shape{dim3(static_cast<unsigned>(m)), dim3(kThreads)};
  launch("gathered rows", gather_kernel, shape, stream, x, width, rows, out);
}

void add_branch(const BranchCall& call, Stream stream) {
  if (call.m == 0) return;
  const bool normed = call.gain != nullptr;
  if (call.m < 0 || call.m > std::numeric_limits<int>::max() || call.width <= 0 ||
      (normed && !(call.eps > 0))) {
    throw Error(ErrorCode::internal, "GPU branch",
                std::to_string(call.m) + " rows of " + std::to_string(call.width) +
                    " values, eps " + std::to_string(call.eps));
  }
  const LaunchShape shape{dim3(static_cast<unsigned>(call.m)), dim3(kThreads)};
  launch("branch", branch_kernel, shape, stream, call);
}

}  // namespace walsh::cuda
