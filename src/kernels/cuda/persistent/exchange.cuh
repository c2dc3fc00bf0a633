// How results get from block to block within a step: the values are their own signal.
//
// The lowest bit of every value tells whether it has been written an odd or an even number of
// times. A reader polls a value until the bit is that of the write it expects, and then clears the
// bit. So there is no barrier, no fence and no flag between two phases: a value is on its way as
// soon as it is computed, and a block goes on as soon as the values it needs have arrived. A value
// is never overwritten before all blocks have read it; this follows from the dependencies of the
// phases (persistent/phase_order.h), and from all such values being read and written in the L2
// cache, so that a reader never sees an older value after a newer one. (Idea: the LL protocol of
// NCCL, whose flags stand beside the values.)
#pragma once

#include <cstdint>

#include "kernels/cuda/persistent/phase.h"
#include "kernels/cuda/persistent/words.cuh"

namespace walsh::cuda {

// Returns the tag bit of the values that a phase reads or writes; `epoch` counts launches.
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

// Reads eight values per lane of each of `Rows` rows; a lane that is not `inside` gets zeros. All
// lanes of a warp have to call it. `meanwhile` runs while the first answers are on their way.
template <int Rows>
struct ExchangeReader {
  const float* from[Rows];  // exchange_place of this lane's first value
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

}  // namespace walsh::cuda
