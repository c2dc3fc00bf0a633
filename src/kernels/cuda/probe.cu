#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "base/cuda/device.h"
#include "kernels/cuda/gemm/dequantized_gemm.h"
#include "kernels/cuda/probe.h"

namespace walsh::cuda {
namespace {

constexpr uint64_t kBytes = uint64_t{4} << 30;
constexpr int kThreads = 512;
constexpr int kLoads = 8;  // A thread has this many 16-byte loads in flight.
constexpr int kPasses = 6;

__global__ void __launch_bounds__(kThreads)
    read_all(const uint4* __restrict__ data, uint64_t count, uint32_t* sink) {
  uint32_t folded = 0;
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * kThreads;
  uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; i + (kLoads - 1) * step < count; i += kLoads * step) {
    uint4 v[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      v[k] = __ldcs(data + i + k * step);
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      folded ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  for (; i < count; i += step)
    folded ^= data[i].x;
  // This is never true, but it keeps the loads from being optimized away.
  if (folded == 0x12345678u) *sink = folded;
}

__global__ void fill(uint32_t* data, uint64_t count) {
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    // These are small bf16 pairs.
    data[i] = static_cast<uint32_t>(i * 2654435761u >> 7 & 0x3fff3fffu);
}

// Returns how many milliseconds the fastest of several runs took.
template <typename Work>
float fastest(Stream stream, Work&& work) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  float best = 1e30f;
  for (int pass = 0; pass < kPasses; ++pass) {
    check(cudaEventRecord(begin, stream), "event");
    work();
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "probe");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (pass > 0) best = std::min(best, ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best;
}

int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "device");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "device");
  return count;
}

}  // namespace

double measure_read_bandwidth() {
  const Buffer data(kBytes), sink(4);
  const OwnedStream stream;
  const int blocks = multiprocessors() * 4;
  fill<<<blocks, kThreads, 0, stream.get()>>>(data.as<uint32_t>(), kBytes / 4);
  check_launch("fill");
  const float ms = fastest(stream.get(), [&] {
    read_all<<<blocks, kThreads, 0, stream.get()>>>(data.as<uint4>(), kBytes / 16,
                                                    sink.as<uint32_t>());
    check_launch("read_all");
  });
  return static_cast<double>(kBytes) / (1e-3 * ms);
}

double measure_bf16_peak() {
  if (!DequantizedGemm::unavailable_reason().empty()) return 0;
  constexpr int64_t n = 8192;
  const OwnedStream stream;
  DenseMatrix weights{DType::bf16, n, n, Buffer(2 * n * n)};
  const Buffer x(2 * n * n), y(4 * n * n);
  for (const Buffer* operand : std::initializer_list<const Buffer*>{&weights.data, &x})
    fill<<<1024, kThreads, 0, stream.get()>>>(operand->as<uint32_t>(), n * n / 2);
  check_launch("fill");
  DequantizedGemm products(0);
  RowMatmul product;
  product.dense = &weights;
  product.cols = n;
  product.y = y.as<float>();
  product.ldy = n;
  const float ms = fastest(stream.get(), [&] {
    products.multiply({&product, 1}, {x.as(), n, DType::bf16, Basis::original}, n, stream.get());
  });
  return static_cast<double>(n) * n * n / (1e-3 * ms);
}

}  // namespace walsh::cuda
