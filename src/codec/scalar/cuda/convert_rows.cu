// Converts rows to another plain type, adds up errors, and measures columns. The GPU encoder needs
// these beside encoding.
#include "codec/scalar/cuda/device_team.cuh"
#include "codec/scalar/cuda/encode_launch.h"

namespace walsh::cuda::encoding {
namespace {

constexpr int kConvertThreads = 128;
constexpr int kSumThreads = 1024;
constexpr int kNormThreads = 128;

__global__ void __launch_bounds__(kConvertThreads)
    convert_kernel(const __grid_constant__ ConvertArgs args) {
  convert_span<DeviceBlock>(DeviceBlock{}, args, blockIdx.x);
}

__global__ void __launch_bounds__(kSumThreads)
    sum_kernel(const double* values, int64_t count, double* total) {
  __shared__ double sums[kSumThreads];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads)
    sum += values[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned width = kSumThreads / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) sums[threadIdx.x] += sums[threadIdx.x + width];
    __syncthreads();
  }
  if (threadIdx.x == 0) *total += sums[0];
}

__device__ __forceinline__ double element(const Source& source, int64_t at) {
  switch (source.type) {
    case SourceType::f32:
      return static_cast<const float*>(source.values)[at];
    case SourceType::f16:
      return DeviceTeam::from_half(static_cast<const uint16_t*>(source.values)[at]);
    default:
      return DeviceTeam::from_bfloat(static_cast<const uint16_t*>(source.values)[at]);
  }
}

// Adds up squares of a chunk of rows. A thread has one column.
__global__ void __launch_bounds__(kNormThreads)
    chunk_norms_kernel(const Source source, int64_t rows, double* partial) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kNormThreads + threadIdx.x;
  if (column >= source.cols) return;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kNormRows;
  const int64_t end = first + kNormRows < rows ? first + kNormRows : rows;
  double sum = 0;
#pragma unroll 8
  for (int64_t row = first; row < end; ++row) {
    const double v = element(source, row * source.cols + column);
    sum += v * v;
  }
  partial[blockIdx.y * source.cols + column] = sum;
}

__global__ void __launch_bounds__(kNormThreads)
    add_norms_kernel(const double* partial, int64_t chunks, int64_t cols, double* norms) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kNormThreads + threadIdx.x;
  if (column >= cols) return;
  double sum = norms[column];
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    sum += partial[chunk * cols + column];
  norms[column] = sum;
}

}  // namespace

void launch_convert(const ConvertArgs& args, int64_t rows, Stream stream) {
  const auto blocks = static_cast<unsigned>(rows * args.spans);
  convert_kernel<<<blocks, kConvertThreads, 0, stream>>>(args);
  check_launch("conversion");
}

void launch_sum(const double* values, int64_t count, double* total, Stream stream) {
  sum_kernel<<<1, kSumThreads, 0, stream>>>(values, count, total);
  check_launch("sum");
}

void launch_column_norms(const Source& source, int64_t rows, double* partial, double* norms,
                         Stream stream) {
  const auto columns = static_cast<unsigned>((source.cols + kNormThreads - 1) / kNormThreads);
  const int64_t chunks = (rows + kNormRows - 1) / kNormRows;
  const dim3 grid(columns, static_cast<unsigned>(chunks));
  chunk_norms_kernel<<<grid, kNormThreads, 0, stream>>>(source, rows, partial);
  check_launch("column norms");
  add_norms_kernel<<<columns, kNormThreads, 0, stream>>>(partial, chunks, source.cols, norms);
  check_launch("column norms");
}

}  // namespace walsh::cuda::encoding
