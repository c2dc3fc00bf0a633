// Has what attention kernels are built of: tiles of the cache in shared memory, and pairs of
// halves.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/attention/args.h"
#include "kernels/cuda/attention/fragments.cuh"

namespace walsh::cuda {

// Says how rows of Dim halves lie in shared memory. The 16-byte pieces of a row are permuted by the
// row number, so that the 8 rows of a fragment lie in different banks. Rows of 96 take the space of
// 128, and those of 192 take that of 256.
template <int Dim>
struct TileLayout {
  static constexpr int kDim = Dim;
  static constexpr int kRowBytes = Dim == 96 ? 256 : Dim == 192 ? 512 : Dim * 2;
  static constexpr int kPieces = Dim / 8;

  static __device__ __forceinline__ uint32_t offset(int row, int piece) {
    return static_cast<uint32_t>(row * kRowBytes + ((piece ^ (row & 7)) << 4));
  }
  // Returns what offset(row, 0) or offset(row, 1) is combined with, by exclusive or, to move on by
  // two pieces per k.
  static constexpr uint32_t step(int k) { return static_cast<uint32_t>(k) << 5; }
};

// Makes tiles of fp16 keys and values, which lie in a page as [kPageTokens][head_dim] per head.
struct F16Tiles {
  // Loads `Rows` positions of the page from `first` to shared memory, with zeros for positions
  // outside [low, high) and for columns from head_dim on. `Threads` threads share the work.
  template <typename Layout, int Rows, int Threads>
  static __device__ __forceinline__ void load(const uint16_t* pool, const CacheView& cache,
                                              int64_t page, int head, int first, int low, int high,
                                              uint32_t shared, int thread) {
    constexpr int kCopies = Rows * Layout::kPieces;
    const uint16_t* rows =
        pool + ((page * cache.kv_heads + head) * kPageTokens + first) * cache.head_dim;
#pragma unroll
    for (int begin = 0; begin < kCopies; begin += Threads) {
      const int i = begin + thread;
      if (kCopies % Threads != 0 && i >= kCopies) break;
      const int row = i / Layout::kPieces, piece = i % Layout::kPieces;
      const bool copy = row >= low && row < high && piece * 8 < cache.head_dim;
      const uint16_t* from = copy ? rows + row * cache.head_dim + piece * 8 : pool;
      copy_async_or_zero(shared + Layout::offset(row, piece), from, copy);
    }
  }
};

__device__ __forceinline__ uint32_t pack_halves(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Returns the remainders of two numbers after packing them as halves, multiplied by `times`.
__device__ __forceinline__ uint32_t pack_rests(uint32_t packed, float low, float high,
                                               float times) {
  const float2 near = halves(packed);
  return pack_halves((low - near.x) * times, (high - near.y) * times);
}

}  // namespace walsh::cuda
