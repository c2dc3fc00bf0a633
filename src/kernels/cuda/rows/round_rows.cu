// Rounds results of products to 16-bit floats.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <string>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/foreign_rows.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kValues = 4;           // A thread rounds this many values.
constexpr int64_t kMaxGrid = 65535;  // A launch has at most this many rows.

__device__ void round_to(float value, __half& out) {
  out = __float2half_rn(value);
}
__device__ void round_to(float value, __nv_bfloat16& out) {
  out = __float2bfloat16_rn(value);
}

// Rounds a part of a row. The grid spans columns in x, and rows in y.
template <typename Element>
__global__ void __launch_bounds__(kThreads)
    round_kernel(const float* x, int64_t ldx, int64_t width, Element* out, int64_t stride) {
  allow_next_kernel();
  wait_previous_kernel();
  const int64_t t = blockIdx.y;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kValues) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kValues; ++k) {
    const int64_t column = first + k * kThreads;
    if (column < width) round_to(x[t * ldx + column], out[t * stride + column]);
  }
}

}  // namespace

void round_rows(const RoundedRows& rows, Stream stream) {
  if (rows.m == 0) return;
  if (rows.m < 0 || rows.m > kMaxGrid || rows.width <= 0)
    throw Error(ErrorCode::internal, "GPU results", std::to_string(rows.m) + " rows at once");
  constexpr int64_t kBlock = kThreads * kValues;
  const LaunchShape shape{dim3(static_cast<unsigned>((rows.width + kBlock - 1) / kBlock),
                               static_cast<unsigned>(rows.m)),
                          dim3(kThreads)};
  if (rows.type == DType::f16) {
    launch("rounded results", round_kernel<__half>, shape, stream, rows.x, rows.ldx, rows.width,
           static_cast<__half*>(rows.out), rows.stride);
  } else {
    launch("rounded results", round_kernel<__nv_bfloat16>, shape, stream, rows.x, rows.ldx,
           rows.width, static_cast<__nv_bfloat16*>(rows.out), rows.stride);
  }
}

}  // namespace walsh::cuda
