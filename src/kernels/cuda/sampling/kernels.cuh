// Has what the sampling kernels share: keys that order logits, sums and searches of a block, and
// the scratch of a row.
#pragma once

#include <cstdint>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/sampling/sampling.h"

namespace walsh::cuda {

inline constexpr int kSampleThreads = 512;
inline constexpr int kSampleWarps = kSampleThreads / 32;
inline constexpr int kPerSampleThread = 4;
inline constexpr int kSlice = kSampleThreads * kPerSampleThread;
inline constexpr int kMostSlices = 16;  // A block has at most this many.
inline constexpr int kBins = 2048;      // The highest bits of a key choose its bin.
inline constexpr int kBinShift = 32 - 11;
// At most this many are sorted. For more a slower search is used.
inline constexpr int kCandidates = 4096;
inline constexpr int kIdBits = 18;
static_assert(kMaxSampledVocab == int64_t{1} << kIdBits);

// Holds the scratch of one row. It is zero between launches, except for `lowest` and `total`.
struct SampleRow {
  unsigned long long best;  // It is the rank of the best token.
  double total;             // It is the sum of exp(logit - best), if all tokens are candidates.
  uint32_t lowest;          // Tokens with this key or a higher one are candidates.
  uint32_t candidates;
  uint32_t scanned, gathered;  // They count blocks that have finished.
  uint32_t finite;
  uint32_t unused;
};

struct SliceSum {
  double sum;  // It sums up exp(logit - largest).
  double largest;
};

struct SampleArgs {
  const float* logits = nullptr;
  int64_t ldl = 0;
  int vocab = 0;
  SampledRows where;
  SampleState* states = nullptr;
  int32_t* history = nullptr;
  int64_t history_stride = 0;
  int32_t* next = nullptr;
  int32_t* host = nullptr;
  int slices = 0;        // A row has this many, of kSlice logits each.
  int block_slices = 1;  // A block has so many, up to kMostSlices.

  SampleRow* rows = nullptr;
  uint32_t* bins = nullptr;             // [m][kBins], zero between launches
  unsigned long long* ranks = nullptr;  // [m][kCandidates]
  SliceSum* sums = nullptr;             // [m][slices]
  uint32_t* keys = nullptr;             // [m][vocab]
};

// Maps floats to unsigned numbers in the same order. Both zeros become equal.
__device__ __forceinline__ uint32_t key_of_logit(float v) {
  const uint32_t u = __float_as_uint(v + 0.0f);
  return u >> 31 ? ~u : u | 0x80000000u;
}
__device__ __forceinline__ float logit_of(uint32_t key) {
  return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}
// Returns a number that orders tokens by preference: higher logits first, then lower ids.
__device__ __forceinline__ unsigned long long rank_of(uint32_t key, int id) {
  const auto lower = static_cast<uint32_t>((1 << kIdBits) - 1 - id);
  return static_cast<unsigned long long>(key) << kIdBits | lower;
}
__device__ __forceinline__ float logit_of_rank(unsigned long long rank) {
  return logit_of(static_cast<uint32_t>(rank >> kIdBits));
}
__device__ __forceinline__ int id_of_rank(unsigned long long rank) {
  return (1 << kIdBits) - 1 - static_cast<int>(rank & ((1u << kIdBits) - 1));
}

// Returns the sum over the block to all threads, in a fixed order. `scratch` has kSampleWarps
// values.
template <typename T>
__device__ __forceinline__ T block_sum(T v, T* scratch) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    v += __shfl_xor_sync(~0u, v, distance);
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  T total = 0;
#pragma unroll
  for (int w = 0; w < kSampleWarps; ++w)
    total += scratch[w];
  return total;
}

// Returns the sum over the threads before this one.
template <typename T>
__device__ __forceinline__ T block_prefix(T v, T* scratch) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  T sum = v;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const T other = __shfl_up_sync(~0u, sum, distance);
    if (lane >= distance) sum += other;
  }
  T before = __shfl_up_sync(~0u, sum, 1);
  if (lane == 0) before = 0;
  __syncthreads();
  if (lane == 31) scratch[warp] = sum;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kSampleWarps; ++w)
    before += w < warp ? scratch[w] : T(0);
  return before;
}

// Returns whether this block is the last of `count` to call this. If so, it sees what the others
// wrote before.
__device__ __forceinline__ bool last_block(uint32_t* arrived, uint32_t count) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrived, 1u) == count - 1;
    if (last) *arrived = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// Returns the next uniform number in [0, 1) of the generator in base/random.h.
__device__ __forceinline__ double next_uniform(uint64_t& state) {
  uint64_t z = (state += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

// Returns the sequence of a row of logits.
__device__ __forceinline__ int64_t sequence_of(const SampleArgs& args, int64_t row) {
  if (!args.where.sequences) return row;
  return args.where.sequences[args.where.wanted ? args.where.wanted[row] : row];
}

// Records a row's token. One thread calls it.
__device__ __forceinline__ void finish_row(const SampleArgs& args, int64_t row, int64_t sequence,
                                           int token) {
  const SampledRows& where = args.where;
  args.next[sequence] = token;
  if (args.host) args.host[row] = token;
  if (where.places_next) {
    const int64_t from = where.wanted ? where.wanted[row] : row;
    where.tokens[row] = token;
    where.positions[row] = where.positions[from] + 1;
    where.sequences[row] = static_cast<int32_t>(sequence);
    if (where.wanted) where.wanted[row] = static_cast<int32_t>(row);
  }
  SampleState& state = args.states[sequence];
  if (!state.penalty || token < 0 || state.length >= args.history_stride) return;
  args.history[sequence * args.history_stride + state.length] = token;
  ++state.length;
}

__global__ void sample_scan_kernel(const __grid_constant__ SampleArgs args);
__global__ void sample_choose_kernel(const __grid_constant__ SampleArgs args);

}  // namespace walsh::cuda
