// Inputs that blocks make for themselves: two blocks of a cluster half of the k-tiles each, into
// the shared memory of both. So there are half as many questions for values and half as many
// rotations.
//
// There are two places, used in turn: the other block may be one product ahead, but not two, since
// it needs this one's k-tiles; so every input has two at least. The bytes that it sends complete a
// barrier of the place.
#pragma once

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/persistent/phase.h"
#include "kernels/cuda/persistent/words.cuh"

namespace walsh::cuda {

__shared__ __align__(8) uint64_t pair_arrivals[2];

// The sums of the squares of a product's inputs, which stand behind all `k_tiles` of them at
// `place`.
__device__ __forceinline__ double* squares_behind(std::byte* place, int k_tiles, int k_tile_bytes) {
  return reinterpret_cast<double*>(place + k_tiles * k_tile_bytes);
}

// Where the inputs of one product come to be.
class PairInputs {
 public:
  // `blocks` is 1 or 2; product number `turn` of those of a launch that make their inputs.
  __device__ PairInputs(std::byte* memory, int bytes, int blocks, int turn)
      : place_(memory + (turn & 1) * bytes), blocks_(blocks), turn_(turn) {}

  // Before the first product; by all threads of both blocks.
  static __device__ __forceinline__ void begin(int blocks) {
    if (blocks == 1) return;
    if (threadIdx.x == 0) {
      for (int i = 0; i < 2; ++i)
        begin_arrivals(arrivals(i));
      show_arrivals();
    }
    cluster_arrive_relaxed();
    cluster_wait();
  }

  // The one that a warp makes.
  __device__ __forceinline__ int k_tile_of(int warp) const {
    return blocks_ == 1 ? warp : cluster_rank() + 2 * warp;
  }

  // K-tiles, then the sums of their squares.
  __device__ __forceinline__ std::byte* place() const { return place_; }

  // Says that `k_tile_bytes` of each of its k-tiles will come from the other block; by one thread,
  // before it sends any.
  __device__ __forceinline__ void expect(int k_tiles, int k_tile_bytes) const {
    if (blocks_ == 1 || threadIdx.x != 0) return;
    expect_bytes(arrivals(turn_ & 1), (k_tiles + cluster_rank()) / 2 * k_tile_bytes);
  }

  // 8 bytes to `p` of the place, of both blocks.
  __device__ __forceinline__ void store(void* p, uint2 v) const {
    *static_cast<uint2*>(p) = v;
    if (blocks_ == 1) return;
    const int other = 1 - cluster_rank();
    send_to_block(cluster_address(shared_address(p), other), v,
                  cluster_address(arrivals(turn_ & 1), other));
  }

  // Until all k-tiles are there; by all threads.
  __device__ __forceinline__ void wait() const {
    __syncthreads();
    if (blocks_ == 1) return;
    while (!have_arrived(arrivals(turn_ & 1), turn_ >> 1 & 1)) {
    }
  }

 private:
  static __device__ __forceinline__ uint32_t arrivals(int i) {
    return shared_address(pair_arrivals + i);
  }

  std::byte* const place_;
  const int blocks_, turn_;
};

}  // namespace walsh::cuda
