// Decodes stored positions in the order of mma.m16n8k16 operands. A tile is 16 positions of a head:
// words [word][32 lanes] of codes, then fp16 scales.
//
// The codes of lane 4 g + t are nibble words of eight, two per 32 columns b:
//   keys    word 2 b + r: position g + 8 r, columns 32 b + {0, 1, 8, 9, 16, 17, 24, 25} + 2 t
//   values  word 2 b + r: column 32 b + 16 r + g, positions {0, 1, 8, 9} + 2 t, then the same
//           positions of column + 8
// so that eight codes are four registers of operands. Nibble words of 2 bits are two to a word, of
// 3 bits four to three words (codec/scalar/packing.h), 8-bit codes are bytes, two words for one.
//
// Scales, `groups` of a vector (1, or one per 32 columns):
//   keys    [g][group] pairs of positions g and g + 8
//   values  [t][group] positions 2 t, 2 t + 1, 2 t + 8, 2 t + 9
#pragma once

#include <cuda_fp16.h>

#include "codec/cuda/permute.cuh"
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/attention/coded_pages.h"
#include "kernels/cuda/attention/decode_softmax.cuh"

namespace walsh::cuda {

// A lane has this many nibble words.
template <int Dim>
inline constexpr int kTileNibbles = Dim / 16;

// Returns stored_positions of a row.
__device__ __forceinline__ int stored_end(const CodedShape& cache, int sequence, int position) {
  return stored_positions(cache.kept[sequence], position, cache.window);
}

// Softmax weights are multiplied by 2 to the power of this, so that their products with fp16 scales
// rarely underflow. If scales are so large that a sum is not finite, the part is computed again
// without the factor.
inline constexpr float kWeightShift = 6;

// Removes the weights' factor. Returns false if a sum of any lane of the warp is not finite.
template <int Dim>
__device__ __forceinline__ bool unshift(Running<Dim>& run) {
  constexpr float kFactor = 1.0f / 64;
  static_assert(kWeightShift == 6);
  float zeros = 0;  // This becomes NaN if a sum is not finite.
#pragma unroll
  for (int d = 0; d < Dim / 16; ++d) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      zeros = __fmaf_rn(run.sum[d][e], 0, zeros);
      run.sum[d][e] *= kFactor;
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h)
    run.total[h] *= kFactor;
  return !__any_sync(~0u, zeros != 0);
}

__device__ __forceinline__ uint32_t multiply_halves(uint32_t a, uint32_t b) {
  const __half2 product =
      __hmul2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const uint32_t*>(&product);
}

// Returns a mask with ones for the halves of positions from `low` on. Lane 4 g + t has two pairs of
// positions.
__device__ __forceinline__ uint32_t seen_mask(int first, int low) {
  return (first >= low ? 0xffffu : 0u) | (first + 1 >= low ? 0xffff0000u : 0u);
}

// Decodes eight codes to four pairs of halves, of nibbles 0 and 1, 2 and 3, and so on.
template <int Bits>
struct HalfDecoder {
  static __device__ __forceinline__ void decode(uint32_t nibbles, const HalfLevels& levels,
                                                uint32_t (&out)[4]) {
    if constexpr (Bits == 4) {
      const uint32_t select = nibbles & 0x77777777u;
      const uint32_t choose = ((nibbles >> 1) & 0x44444444u) | 0x32103210u;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t s = select >> (16 * i), c = choose >> (16 * i);
        const uint32_t high = permute(permute(levels.high[0], levels.high[1], s),
                                      permute(levels.high[2], levels.high[3], s), c);
        join(permute(levels.low[0], levels.low[1], s), high, out[2 * i], out[2 * i + 1]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t s = nibbles >> (16 * i);
        join(permute(levels.low[0], levels.low[1], s), permute(levels.high[0], levels.high[1], s),
             out[2 * i], out[2 * i + 1]);
      }
    }
  }

 private:
  static __device__ __forceinline__ void join(uint32_t low, uint32_t high, uint32_t& first,
                                              uint32_t& second) {
    first = permute(low, high, 0x5140u);
    second = permute(low, high, 0x7362u);
  }
};

// Decodes eight codes to two words of int8 levels, of nibbles 0 to 3 and 4 to 7.
template <int Bits>
__device__ __forceinline__ void decode_bytes(uint32_t nibbles, const ByteLevels& levels,
                                             uint32_t& low, uint32_t& high) {
  const uint32_t* t = levels.words;
  if constexpr (Bits == 4) {
    const uint32_t select = nibbles & 0x77777777u;
    const uint32_t choose = ((nibbles >> 1) & 0x44444444u) | 0x32103210u;
    const auto sixteen = [&](uint32_t s, uint32_t c) {
      return permute(permute(t[0], t[1], s), permute(t[2], t[3], s), c);
    };
    low = sixteen(select, choose);
    high = sixteen(upper_half(select), upper_half(choose));
  } else {
    low = permute(t[0], t[1], nibbles);
    high = permute(t[0], t[1], upper_half(nibbles));
  }
}

// Calls f(i, nibble word i) for all codes of a lane. word(0), word(1), ... are its packed words.
template <int Bits, int Dim, typename Word, typename F>
__device__ __forceinline__ void each_nibbles(const Word& word, const F& f) {
  constexpr int kNibbles = kTileNibbles<Dim>;
  static_assert(Bits == 2 || Bits == 3 || Bits == 4);
  if constexpr (Bits == 4) {
#pragma unroll
    for (int i = 0; i < kNibbles; ++i)
      f(i, word(i));
  } else if constexpr (Bits == 3) {
#pragma unroll
    for (int i = 0; i < kNibbles; i += 4) {
      uint32_t words[3], rest = 0;
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        words[j] = word(i / 4 * 3 + j);
        rest |= (words[j] >> (3 - j)) & (0x11111111u << j);
        f(i + j, words[j] & 0x77777777u);
      }
      f(i + 3, rest);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kNibbles; i += 2) {
      const uint32_t both = word(i / 2);
#pragma unroll
      for (int j = 0; j < 2; ++j)
        f(i + j, (both >> (2 * j)) & 0x33333333u);
    }
  }
}

// Decodes all codes of a lane, as each_nibbles does, and calls f(nibble word, halves).
template <int Bits, int Dim, typename Word, typename F>
__device__ __forceinline__ void decode_lane(const Word& word, const HalfLevels& levels, F f) {
  uint32_t out[4];
  if constexpr (Bits == 8) {
#pragma unroll
    for (int i = 0; i < kTileNibbles<Dim>; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint32_t bytes = word(2 * i + j);
#pragma unroll
        for (int k = 0; k < 2; ++k) {  // The halves are 1024 + byte, less 1152.
          const uint32_t biased = permute(bytes, 0x64646464u, k == 0 ? 0x4140u : 0x4342u);
          const __half2 level = __hsub2(*reinterpret_cast<const __half2*>(&biased),
                                        __half2half2(__ushort_as_half(uint16_t{0x6480})));
          out[2 * j + k] = *reinterpret_cast<const uint32_t*>(&level);
        }
      }
      f(i, out);
    }
  } else {
    each_nibbles<Bits, Dim>(word, [&](int i, uint32_t nibbles) {
      HalfDecoder<Bits>::decode(nibbles, levels, out);
      f(i, out);
    });
  }
}

// Reads the words of a lane, which lie at `shared` + 128 * word.
struct SharedWords {
  uint32_t shared;
  __device__ __forceinline__ uint32_t operator()(int i) const {
    return shared_word(shared + static_cast<uint32_t>(128 * i));
  }
};

}  // namespace walsh::cuda
