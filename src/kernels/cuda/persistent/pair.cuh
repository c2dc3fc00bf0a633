// Inputs that blocks make for themselves. The two blocks of a cluster each make half of the k-tiles
// and write them to the shared memory of both, which halves the number of reads and of rotations.
//
// There are two places, used in turn. The other block may be one product ahead but not two, since
// it needs the k-tiles of this one; therefore every such input has at least two k-tiles. A barrier
// per place counts the bytes that the other block sends.
#pragma once

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/persistent/phase.h"
#include "kernels/cuda/persistent/words.cuh"

namespace walsh::cuda {

__shared__ __align__(8) uint64_t pair_arrivals[2];

// The sums of the squares of a product's inputs. They are behind all `k_tiles` k-tiles at `place`.
__device__ __forceinline__ double* squares_behind(std::byte* place, int k_tiles, int k_tile_bytes) {
  return reinterpret_cast<double*>(place + k_tiles * k_tile_bytes);
}

// The place of the inputs of one product.
class PairInputs {
 public:
  // `blocks` is 1 or 2; `turn` is the number of this product among those of the launch that make
  // their own inputs.
  __device__ PairInputs(std::byte* memory, int bytes, int blocks, int turn)
      : place_(memory + (turn & 1) * bytes), blocks_(blocks), turn_(turn) {}

  // Called before the first product, by all threads of both blocks.
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

  // Returns the k-tile that a warp makes.
  __device__ __forceinline__ int k_tile_of(int warp) const {
    return blocks_ == 1 ? warp : cluster_rank() + 2 * warp;
  }

  // The k-tiles, followed by the sums of their squares.
  __device__ __forceinline__ std::byte* place() const { return place_; }

  // Announces that `k_tile_bytes` bytes of each of its k-tiles will come from the other block. One
  // thread calls it, before it sends any.
  __device__ __forceinline__ void expect(int k_tiles, int k_tile_bytes) const {
    if (blocks_ == 1 || threadIdx.x != 0) return;
    expect_bytes(arrivals(turn_ & 1), (k_tiles + cluster_rank()) / 2 * k_tile_bytes);
  }

  // Writes 8 bytes to offset `p` of the place, in both blocks.
  __device__ __forceinline__ void store(void* p, uint2 v) const {
    *static_cast<uint2*>(p) = v;
    if (blocks_ == 1) return;
    const int other = 1 - cluster_rank();
    send_to_block(cluster_address(shared_address(p), other), v,
                  cluster_address(arrivals(turn_ & 1), other));
  }

  // Waits until all k-tiles have arrived; all threads call it.
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
