#include "kernels/cuda/rows/latent_rows.h"

#include <string>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/rope.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;

struct LatentArgs {
  LatentRows call;
  __half* latents = nullptr;      // Its shape is [page][kPageTokens][rank].
  __half* shared_keys = nullptr;  // Its shape is [page][kPageTokens][turned].
  int rank = 0, turned = 0;
  const int32_t* pages = nullptr;
  int64_t per_sequence = 0;
  const int32_t* positions = nullptr;
  const int32_t* sequences = nullptr;
};

// Returns the sum over all threads of the block.
__device__ double block_sum(double x, int thread) {
  __shared__ double sums[kWarps];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    x += __shfl_xor_sync(~0u, x, distance);
  if (thread % 32 == 0) sums[thread / 32] = x;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kWarps; ++w)
    sum += sums[w];
  return sum;
}

// Keeps a row. The latent is a value, too, so it is always finite. If its row is NaN, so is the
// shared key (kept_half).
__device__ void keep_row(const LatentArgs& args, int64_t row, int64_t position, int thread) {
  const LatentRows& call = args.call;
  const int64_t page = args.pages[args.sequences[row] * args.per_sequence + position / kPageTokens];
  const int64_t at = page * kPageTokens + position % kPageTokens;
  const float* x = call.latent + row * call.ld_latent;
  double squares = 0;
  for (int i = thread; i < args.rank; i += kThreads)
    squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double sum = block_sum(squares, thread);
  const float inverse =
      static_cast<float>(1.0 / sqrt(sum / args.rank + static_cast<double>(call.eps)));
  for (int i = thread; i < args.rank; i += kThreads)
    args.latents[at * args.rank + i] = kept_half(x[i] * inverse * call.gain[i], false);
  const float* key = call.shared_key + row * call.ld_shared;
  __half* to = args.shared_keys + at * args.turned;
  const float *cos = call.cos + position * call.pairs, *sin = call.sin + position * call.pairs;
  for (int i = thread; i < call.pairs; i += kThreads) {
    const float a = key[i], b = key[call.pairs + i];
    to[i] = kept_half(a * cos[i] - b * sin[i], true);
    to[call.pairs + i] = kept_half(b * cos[i] + a * sin[i], true);
  }
  for (int i = 2 * call.pairs + thread; i < args.turned; i += kThreads)
    to[i] = kept_half(key[i], true);
}

__device__ void turn_queries(const LatentRows& call, int64_t row, int64_t position, int thread) {
  float* q = call.q + row * call.ldq;
  const float *cos = call.cos + position * call.pairs, *sin = call.sin + position * call.pairs;
  const float factor = call.q_scale == nullptr ? 1.0f : call.q_scale[position];
  for (int i = thread; i < call.heads * call.pairs; i += kThreads) {
    float* head = q + i / call.pairs * call.head_dim;
    const int p = i % call.pairs;
    const float a = head[p], b = head[call.pairs + p];
    head[p] = (a * cos[p] - b * sin[p]) * factor;
    head[call.pairs + p] = (b * cos[p] + a * sin[p]) * factor;
  }
  if (call.q_scale == nullptr) return;
  const int rest = call.head_dim - 2 * call.pairs;
  for (int i = thread; i < call.heads * rest; i += kThreads)
    q[i / rest * call.head_dim + 2 * call.pairs + i % rest] *= factor;
}

// Keeps latents and turns queries. The grid spans rows in x; y is 0 for the cache, and 1 for
// queries.
__global__ void __launch_bounds__(kThreads) keep_kernel(const __grid_constant__ LatentArgs args) {
  allow_next_kernel();
  wait_previous_kernel();
  const int64_t row = blockIdx.x;
  const int64_t position = args.positions[row];
  const int thread = static_cast<int>(threadIdx.x);
  if (blockIdx.y == 0) {
    keep_row(args, row, position, thread);
  } else {
    turn_queries(args.call, row, position, thread);
  }
}

constexpr int kLineBytes = 128;
constexpr int kRows = 4, kTokens = 8;  // A warp takes this many rows and tokens.
static_assert(kRows * kTokens == 32, "a lane has one result");

__device__ __forceinline__ float2 load_two(const __half* p) {
  return __half22float2(*reinterpret_cast<const __half2*>(p));
}
__device__ __forceinline__ float2 load_two(const float* p) {
  return *reinterpret_cast<const float2*>(p);
}
struct Bf16 {
  uint16_t bits;
};
__device__ __forceinline__ float2 load_two(const Bf16* p) {
  const uint32_t both = *reinterpret_cast<const uint32_t*>(p);
  return make_float2(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u));
}

// Adds 32 values up over the lanes of a warp. Lane l gets the sum of value l.
__device__ __forceinline__ float sum_each(float (&v)[32], int lane) {
#pragma unroll
  for (int n = 16; n > 0; n /= 2) {
    const bool upper = (lane & n) != 0;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float sent = upper ? v[i] : v[i + n], own = upper ? v[i + n] : v[i];
      v[i] = own + __shfl_xor_sync(~0u, sent, n);
    }
  }
  return v[0];
}

// Multiplies heads. The grid spans rows of a head in x, heads in y, and tokens in z. A warp takes
// kRows rows and kTokens tokens, and its lanes take pairs of columns.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    heads_kernel(const __grid_constant__ HeadProducts call) {
  allow_next_kernel();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int head = static_cast<int>(blockIdx.y);
  const int row = (static_cast<int>(blockIdx.x) * kWarps + thread / 32) * kRows;
  const int64_t token = int64_t{blockIdx.z} * kTokens;
  const int64_t left = call.m - token;
  const int tokens = left < kTokens ? static_cast<int>(left) : kTokens;
  const float* x = call.x + token * call.ldx + head * (call.kept + call.cols);
  float* y = call.y + token * call.ldy + head * (call.rows + call.kept);
  const T* w = static_cast<const T*>(call.w) + (int64_t{head} * call.rows + row) * call.cols;
  // Weights do not depend on the kernel in front. Those of the rows lie one after the other.
  const int rows = row < call.rows ? min(kRows, call.rows - row) : 0;
  for (int i = kLineBytes / static_cast<int>(sizeof(T)) * lane; i < rows * call.cols;
       i += kLineBytes / static_cast<int>(sizeof(T)) * 32)
    prefetch(w + i);
  wait_previous_kernel();
  if (blockIdx.x == 0) {
    for (int i = thread; i < tokens * call.kept; i += kThreads) {
      const int t = i / call.kept, at = i % call.kept;
      y[t * call.ldy + call.rows + at] = x[t * call.ldx + at];
    }
  }
  if (rows == 0) return;
  float sums[kRows * kTokens] = {};
  for (int c = 2 * lane; c < call.cols; c += 64) {
    float2 weights[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      weights[r] = r < rows ? load_two(w + int64_t{r} * call.cols + c) : float2{};
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float2 v = t < tokens ? load_two(x + t * call.ldx + call.kept + c) : float2{};
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float& sum = sums[r * kTokens + t];
        sum = __fmaf_rn(weights[r].x, v.x, __fmaf_rn(weights[r].y, v.y, sum));
      }
    }
  }
  const float sum = sum_each(sums, lane);
  const int r = lane / kTokens, t = lane % kTokens;
  if (r < rows && t < tokens) y[t * call.ldy + row + r] = sum;
}

}  // namespace

void keep_latents(const LatentRows& call, const KvPool& cache, const PageTable& table,
                  const RowPlaces& rows, Stream stream) {
  if (call.m == 0) return;
  LatentArgs args;
  args.call = call;
  args.latents = cache.values.as<__half>();
  args.shared_keys = cache.keys.as<__half>();
  args.rank = cache.value_dim;
  args.turned = cache.head_dim;
  args.pages = table.pages;
  args.per_sequence = table.per_sequence;
  args.positions = rows.positions;
  args.sequences = rows.sequences;
  launch("latents", keep_kernel, {dim3(static_cast<unsigned>(call.m), 2), dim3(kThreads)}, stream,
         args);
}

void multiply_heads(const HeadProducts& call, Stream stream) {
  if (call.m == 0) return;
  if (call.kept % 2 != 0 || call.cols % 2 != 0 || call.ldx % 2 != 0) {
    throw Error(ErrorCode::internal, "GPU products of heads",
                std::to_string(call.cols) + " columns behind " + std::to_string(call.kept));
  }
  const auto kernel = call.type == DType::f32    ? heads_kernel<float>
                      : call.type == DType::bf16 ? heads_kernel<Bf16>
                                                 : heads_kernel<__half>;
  const int block_rows = kWarps * kRows;
  const LaunchShape shape{dim3(static_cast<unsigned>((call.rows + block_rows - 1) / block_rows),
                               static_cast<unsigned>(call.heads),
                               static_cast<unsigned>((call.m + kTokens - 1) / kTokens)),
                          dim3(kThreads)};
  launch("products of heads", kernel, shape, stream, call);
}

}  // namespace walsh::cuda
