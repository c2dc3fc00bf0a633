// Norm and rotary positions of queries and keys, and the append to the cache: one warp per head.
#include <cuda_fp16.h>

#include <string>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kPairs = kMaxHeadDim / 2 / 32;  // of a lane at most: values i and i + head_dim / 2

struct RopeArgs {
  RopeCall call;
  __half* keys = nullptr;
  __half* values = nullptr;
  int kv_heads = 0, head_dim = 0;
  const int32_t* pages = nullptr;
  int64_t per_sequence = 0;
  const int32_t* positions = nullptr;
  const int32_t* sequences = nullptr;
};

struct Pairs {
  float a[kPairs], b[kPairs];
};

__device__ __forceinline__ Pairs load_pairs(const float* x, int half, int lane) {
  Pairs v{};
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= half) break;
    v.a[j] = x[i];
    v.b[j] = x[i + half];
  }
  return v;
}

// The squares are summed in double, as everywhere.
__device__ __forceinline__ void normalize(Pairs& v, const float* gain, float eps, int half,
                                          int lane) {
  double sum = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j)
    sum += static_cast<double>(v.a[j]) * static_cast<double>(v.a[j]) +
           static_cast<double>(v.b[j]) * static_cast<double>(v.b[j]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  const float inverse = static_cast<float>(1.0 / sqrt(sum / (2 * half) + static_cast<double>(eps)));
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= half) break;
    v.a[j] = v.a[j] * inverse * gain[i];
    v.b[j] = v.b[j] * inverse * gain[i + half];
  }
}

__device__ __forceinline__ void rotate(Pairs& v, const float* cos, const float* sin, int half,
                                       int lane) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= half) break;
    const float a = v.a[j], b = v.b[j];
    v.a[j] = a * cos[i] - b * sin[i];
    v.b[j] = b * cos[i] + a * sin[i];
  }
}

template <typename T, typename Convert>
__device__ __forceinline__ void store_pairs(const Pairs& v, T* to, int half, int lane,
                                            Convert convert) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= half) break;
    to[i] = convert(v.a[j]);
    to[i + half] = convert(v.b[j]);
  }
}

// Grid: x over heads (of queries, then keys, then values), y over rows.
__global__ void __launch_bounds__(kWarps * 32) rope_kernel(const __grid_constant__ RopeArgs args) {
  const RopeCall& call = args.call;
  const int lane = static_cast<int>(threadIdx.x % 32);
  int head = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  allow_next_kernel();
  const int dim = args.head_dim, half = dim / 2;
  const int64_t row = blockIdx.y;
  // Positions and pages are there before the step's first kernel.
  const int64_t position = args.positions[row];
  const int64_t page = args.pages[args.sequences[row] * args.per_sequence + position / kPageTokens];
  if (2 * lane < half) {
    prefetch(call.cos + position * half + 2 * lane);
    prefetch(call.sin + position * half + 2 * lane);
  }
  wait_previous_kernel();
  if (head >= call.heads + 2 * args.kv_heads) return;
  const float* cos = call.cos + position * half;
  const float* sin = call.sin + position * half;
  if (head < call.heads) {
    float* q = call.q + row * call.ldq + head * dim;
    Pairs v = load_pairs(q, half, lane);
    if (call.q_norm) normalize(v, call.q_norm, call.eps, half, lane);
    rotate(v, cos, sin, half, lane);
    store_pairs(v, q, half, lane, [](float x) { return x; });
    return;
  }
  head -= call.heads;
  const bool key = head < args.kv_heads;
  if (!key) head -= args.kv_heads;
  const int64_t to = ((page * args.kv_heads + head) * kPageTokens + position % kPageTokens) * dim;
  Pairs v = load_pairs((key ? call.k + row * call.ldk : call.v + row * call.ldv) + head * dim, half,
                       lane);
  if (key) {
    if (call.k_norm) normalize(v, call.k_norm, call.eps, half, lane);
    rotate(v, cos, sin, half, lane);
  }
  store_pairs(v, (key ? args.keys : args.values) + to, half, lane,
              [](float x) { return __float2half_rn(x); });
}

}  // namespace

void rope_and_store(const RopeCall& call, const KvPool& cache, const PageTable& table,
                    const RowPlaces& rows, Stream stream) {
  if (call.m == 0) return;
  if (call.m > 65535) {
    throw Error(ErrorCode::internal, "GPU rope", std::to_string(call.m) + " rows in one launch");
  }
  RopeArgs args;
  args.call = call;
  args.keys = cache.keys.as<__half>();
  args.values = cache.values.as<__half>();
  args.kv_heads = cache.kv_heads;
  args.head_dim = cache.head_dim;
  args.pages = table.pages;
  args.per_sequence = table.per_sequence;
  args.positions = rows.positions;
  args.sequences = rows.sequences;
  const int heads = call.heads + 2 * cache.kv_heads;
  const LaunchShape shape{
      dim3(static_cast<unsigned>((heads + kWarps - 1) / kWarps), static_cast<unsigned>(call.m)),
      dim3(kWarps * 32)};
  launch("rope", rope_kernel, shape, stream, args);
}

}  // namespace walsh::cuda
