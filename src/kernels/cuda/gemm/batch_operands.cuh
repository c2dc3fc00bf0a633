// Operands of wgmma from the codes of a lane, of four products at a time: a quarter or half of a
// k-tile's columns.
#pragma once

#include "kernels/cuda/gemm/batch_launch.h"
#include "kernels/cuda/weights/code_decoder.cuh"
#include "kernels/cuda/weights/trellis_decoder.cuh"

namespace walsh::cuda::detail {

// A byte of an operand is a weight: product i has the columns 32 i .. 32 i + 31 of the chunk.
template <typename Decoder>
struct BatchOperands {
  static constexpr BatchForm kForm = BatchForm::plain;
  static constexpr int kTurns = 1;  // calls for a chunk

  // `words`: of a k-tile, row g of chunk 0, row g + 8, the same of chunk 1. Number Turn of the
  // calls for a k-tile.
  template <int Turn>
  static __device__ __forceinline__ void decode(const uint32_t (&words)[4 * Decoder::kVectors],
                                                const uint32_t (&)[4], const LevelTable& table,
                                                uint32_t (&a)[4][4]) {
    const uint32_t* upper = words + Turn * 2 * Decoder::kVectors;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Decoder::decode(upper, i, table, a[i][0], a[i][2]);
      Decoder::decode(upper + Decoder::kVectors, i, table, a[i][1], a[i][3]);
    }
  }
};

// Two bytes make a weight: of 64 columns, product i has quad i of each of the four tiles.
template <int Bits>
struct BatchOperands<TrellisDecoder<Bits>> {
  static constexpr BatchForm kForm = BatchForm::doubled;
  static constexpr int kTurns = 2;
  using Decoder = TrellisDecoder<Bits>;

  template <int Turn>
  static __device__ __forceinline__ void decode(const uint32_t (&words)[4 * Decoder::kVectors],
                                                const uint32_t (&before)[4],
                                                const LevelTable& table, uint32_t (&a)[4][4]) {
    const auto stream = Decoder::stream(words, before, Turn);
    quad<0>(stream, table.words[0], a[0]);
    quad<1>(stream, table.words[0], a[1]);
    quad<2>(stream, table.words[0], a[2]);
    quad<3>(stream, table.words[0], a[3]);
  }

 private:
  template <int Quad>
  static __device__ __forceinline__ void quad(const typename Decoder::Stream& stream,
                                              uint32_t multiplier, uint32_t (&a)[4]) {
    constexpr uint32_t kBits = 0x7f7f7f7fu;
    uint32_t s[4];
    Decoder::template products<Quad>(stream, multiplier, s);
    a[0] = s[0] & kBits, a[1] = s[2] & kBits, a[2] = s[1] & kBits, a[3] = s[3] & kBits;
  }
};

}  // namespace walsh::cuda::detail
