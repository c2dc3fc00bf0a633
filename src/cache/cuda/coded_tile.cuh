// Stored positions in the order of mma.m16n8k16 operands. A tile is 16 positions of a head: words
// [word][32 lanes] of codes, then fp16 scales.
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

#include "cache/cuda/coded_cache.h"
#include "codec/scalar/cuda/code_decoder.cuh"
#include "kernels/cuda/async.cuh"

namespace walsh::cuda {

// Nibble words per lane.
template <int Dim>
inline constexpr int kTileNibbles = Dim / 16;

// The end of the positions that a query at `position` reads as stored.
__device__ __forceinline__ int stored_end(const CodedView& cache, int sequence, int position) {
  return max(cache.kept[sequence], max(0, position - cache.window) / kCacheBundle * kCacheBundle);
}

// Decodes eight codes to four pairs of halves: of nibbles 0 and 1, 2 and 3, ...
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

// Decodes all codes of a lane, which are at `shared` + 128 * word; calls f(nibble word, halves).
template <int Bits, int Dim, typename F>
__device__ __forceinline__ void decode_lane(uint32_t shared, const HalfLevels& levels, F f) {
  constexpr int kNibbles = kTileNibbles<Dim>;
  uint32_t out[4];
  if constexpr (Bits == 8) {
#pragma unroll
    for (int i = 0; i < kNibbles; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint32_t bytes = shared_word(shared + 128 * (2 * i + j));
#pragma unroll
        for (int k = 0; k < 2; ++k) {  // 1024 + byte, less 1152
          const uint32_t biased = permute(bytes, 0x64646464u, k == 0 ? 0x4140u : 0x4342u);
          const __half2 level = __hsub2(*reinterpret_cast<const __half2*>(&biased),
                                        __half2half2(__ushort_as_half(uint16_t{0x6480})));
          out[2 * j + k] = *reinterpret_cast<const uint32_t*>(&level);
        }
      }
      f(i, out);
    }
  } else if constexpr (Bits == 4) {
#pragma unroll
    for (int i = 0; i < kNibbles; ++i) {
      HalfDecoder<4>::decode(shared_word(shared + 128 * i), levels, out);
      f(i, out);
    }
  } else if constexpr (Bits == 3) {
#pragma unroll
    for (int i = 0; i < kNibbles; i += 4) {
      uint32_t words[3], rest = 0;
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        words[j] = shared_word(shared + 128 * (i / 4 * 3 + j));
        rest |= (words[j] >> (3 - j)) & (0x11111111u << j);
        HalfDecoder<3>::decode(words[j] & 0x77777777u, levels, out);
        f(i + j, out);
      }
      HalfDecoder<3>::decode(rest, levels, out);
      f(i + 3, out);
    }
  } else {
    static_assert(Bits == 2);
#pragma unroll
    for (int i = 0; i < kNibbles; i += 2) {
      const uint32_t word = shared_word(shared + 128 * (i / 2));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        HalfDecoder<2>::decode((word >> (2 * j)) & 0x33333333u, levels, out);
        f(i + j, out);
      }
    }
  }
}

}  // namespace walsh::cuda
