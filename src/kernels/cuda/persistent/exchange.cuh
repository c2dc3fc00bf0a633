// Moves values from block to block within a step. Results go through memory; inputs that two blocks
// make together go through their shared memory.
//
// Results are their own signal. The lowest bit of every value tells whether it has been written an
// odd or an even number of times. A reader polls a value until the bit is that of the write it
// expects, and then clears the bit. So there is no barrier, no fence and no flag between two
// phases: a value is on its way as soon as it is computed, and a block goes on as soon as the
// values it needs have arrived. A value is never overwritten before all blocks have read it. This
// follows from the dependencies of the phases (persistent/block_work.h), and from all such values
// being read and written in the L2 cache, so that a reader never sees an older value after a newer
// one. (Idea: the LL protocol of NCCL, whose flags stand beside the values.)
#pragma once

#include <cstdint>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/persistent/phase.h"
#include "kernels/cuda/persistent/words.cuh"

namespace walsh::cuda {

// Returns the tag bit of the values that a phase reads or writes. `epoch` counts launches.
__device__ __forceinline__ uint32_t tag_bit(const ValueTag& tag, uint32_t epoch) {
  return (tag.bit ^ (tag.flips & epoch)) & 1;
}

// Returns the place of value i in an array. Of 256 columns a lane reads eight neighbours as two
// pieces of 16 bytes. The pieces of all lanes are contiguous, so that every byte of a transaction
// is used.
__device__ __forceinline__ int exchange_place(int i) {
  return (i & ~255) | (i & 4) << 5 | (i & 0xf8) >> 1 | (i & 3);
}

__device__ __forceinline__ void exchange(float* p, float value, uint32_t bit) {
  exchange_word(p, (__float_as_uint(value) & ~1u) | bit);
}

// Waits for one value, which all lanes poll. If a block has to wait for long, polling all values
// would keep the memory busy.
__device__ __forceinline__ void await_one(const float* p, uint32_t bit) {
  while ((exchanged_word(p) & 1) != bit) {
  }
}

// Reads eight values per lane of each of `Rows` rows. A lane that is not `inside` gets zeros. All
// lanes of a warp have to call it. `meanwhile` runs while the first answers are on their way.
template <int Rows>
struct ExchangeReader {
  const float* from[Rows];  // It is the exchange_place of this lane's first value.
  uint32_t bits[Rows];
  uint4 words[Rows][2] = {};

  __device__ __forceinline__ void ask() {
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      words[r][0] = exchanged_words(from[r]);
      words[r][1] = exchanged_words(from[r] + 128);
    }
  }

  __device__ __forceinline__ bool missing() const {
    bool any_missing = false;
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const uint4 &a = words[r][0], &b = words[r][1];
      const uint32_t all = a.x & a.y & a.z & a.w & b.x & b.y & b.z & b.w;
      const uint32_t any = a.x | a.y | a.z | a.w | b.x | b.y | b.z | b.w;
      any_missing |= ((bits[r] != 0 ? all : any) & 1) != bits[r];
    }
    return any_missing;
  }

  template <typename Meanwhile>
  __device__ __forceinline__ void read(bool inside, const Meanwhile& meanwhile,
                                       float (&v)[Rows][8]) {
    if (inside) ask();
    meanwhile();
    while (__any_sync(~0u, inside && missing()))
      if (inside && missing()) ask();
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const uint32_t flat[8] = {words[r][0].x, words[r][0].y, words[r][0].z, words[r][0].w,
                                words[r][1].x, words[r][1].y, words[r][1].z, words[r][1].w};
#pragma unroll
      for (int e = 0; e < 8; ++e)
        v[r][e] = __uint_as_float(flat[e] & ~1u);
    }
  }
};

// Names the row, or the rows, that a launch of a program computes.
__shared__ ProgramRow program_row;
__shared__ ProgramRow program_rows[kMostRows];
__shared__ int32_t program_row_count;
// Only programs with other mixers or coded caches have this.
[[maybe_unused]] __shared__ int32_t program_sequence;

__shared__ __align__(8) uint64_t pair_arrivals[2];  // They are barriers of PairInputs.

// Returns the sums of squares of a product's inputs, behind all `k_tiles` k-tiles at `place`.
__device__ __forceinline__ double* squares_behind(std::byte* place, int k_tiles, int k_tile_bytes) {
  return reinterpret_cast<double*>(place + k_tiles * k_tile_bytes);
}

// Holds the inputs of one product, which blocks make for themselves. The two blocks of a cluster
// each make half of the k-tiles and write them to the shared memory of both, which halves the
// number of reads and of rotations.
//
// There are two places, used in turn. The other block may be one product ahead but not two, since
// it needs the k-tiles of this one; therefore every such input has at least two k-tiles. A barrier
// per place counts the bytes that the other block sends.
class PairInputs {
 public:
  // `blocks` is 1 or 2; `turn` is the number of this product among those of the launch that make
  // their own inputs.
  __device__ PairInputs(std::byte* memory, int bytes, int blocks, int turn)
      : place_(memory + (turn & 1) * bytes), blocks_(blocks), turn_(turn) {}

  // Starts the barriers. All threads of both blocks call it before the first product.
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
  // Returns how many k-tiles all warps of the blocks make at a time.
  __device__ __forceinline__ int at_a_time() const { return blocks_ * kProgramWarps; }

  // Returns where the k-tiles are. The sums of their squares follow them.
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

  // Waits until all k-tiles have arrived. All threads call it.
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
