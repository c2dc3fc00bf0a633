// How results get from block to block within a step: they are their own signal.
//
// The lowest bit of every value says whether it has been written an odd or an even number of times.
// A reader asks for a value until its bit is the one that the next write has, and clears it. So
// there is no barrier, no fence and no flag between two phases: a value is on its way as soon as it
// is known, and a block goes on as soon as the ones it needs are there. That nobody writes a value
// again before all have read it follows from what the phases need of each other
// (persistent/phase_order.h), and from the L2 cache being the one place where such values meet:
// none is older there than what has been read of it. (Idea: the LL protocol of NCCL, whose flags
// stand beside the values.)
#pragma once

#include <cstdint>

#include "kernels/cuda/persistent/phase.h"
#include "kernels/cuda/persistent/words.cuh"

namespace walsh::cuda {

// The bit that the values have which a phase reads or writes; `epoch` counts launches.
__device__ __forceinline__ uint32_t tag_bit(const ValueTag& tag, uint32_t epoch) {
  return (tag.bit ^ (tag.flips & epoch)) & 1;
}

// Where value i of an array stands. Of 256 columns a lane reads eight neighbours, in two pieces of
// 16 bytes: those of all lanes lie one after the other, so that nobody asks for bytes in vain.
__device__ __forceinline__ int exchange_place(int i) {
  return (i & ~255) | (i & 4) << 5 | (i & 0xf8) >> 1 | (i & 3);
}

__device__ __forceinline__ void exchange(float* p, float value, uint32_t bit) {
  exchange_word(p, (__float_as_uint(value) & ~1u) | bit);
}

// Waits for one value, which all lanes ask for: blocks that wait for long must not keep the memory
// busy with asking for all of them.
__device__ __forceinline__ void await_one(const float* p, uint32_t bit) {
  while ((exchanged_word(p) & 1) != bit) {
  }
}

// Eight values of a lane of each of `Rows` rows, zeros for a lane that is not `inside`. By whole
// warps. `meanwhile` is done while the first answers are on their way.
template <int Rows>
struct ExchangeReader {
  const float* from[Rows];  // exchange_place of the lane's first one
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
