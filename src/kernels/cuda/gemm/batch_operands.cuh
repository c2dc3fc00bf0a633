// Loads the codes of a warp into registers and makes int8 operands of tensor cores from them.
#pragma once

#include "codec/product/cuda/product_decoder.cuh"
#include "codec/scalar/cuda/code_decoder.cuh"
#include "codec/trellis/cuda/trellis_decoder.cuh"
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemm/batch_launch.h"

namespace walsh::cuda::detail {

// Holds a lane's codes of a k-tile, the scales of its rows g and g + 8 for both groups of 128
// columns, and the offsets of these rows.
template <typename Decoder>
struct BatchCodes {
  // Scales of both groups come first, then offsets.
  static constexpr int kSideAt = Decoder::kVectors * 512;
  static constexpr int kBytes = kSideAt + 128;

  uint32_t word[4 * Decoder::kVectors];
  uint32_t before[4];  // For trellis codes it has the first words of the lane before.
  float2 scale[2], offset;

  __device__ __forceinline__ void load(uint32_t place, bool offsets) {
    const uint32_t lane = threadIdx.x % 32;
    constexpr int kWhole = Decoder::kWords / 4;
#pragma unroll
    for (int v = 0; v < kWhole; ++v) {
      const uint4 w = shared_words(place + v * 512 + lane * 16);
      word[4 * v] = w.x, word[4 * v + 1] = w.y, word[4 * v + 2] = w.z, word[4 * v + 3] = w.w;
    }
    if constexpr (kWhole < Decoder::kVectors) {
      const float2 w = shared_float2(place + kWhole * 512 + lane * 8);
      word[4 * kWhole] = __float_as_uint(w.x), word[4 * kWhole + 1] = __float_as_uint(w.y);
    }
    if constexpr (kIsTrellis<Decoder>) {
      const uint4 w = shared_words(
          place + static_cast<uint32_t>(trellis_lane_before(static_cast<int>(lane))) * 16);
      before[0] = w.x, before[1] = w.y, before[2] = w.z, before[3] = w.w;
    }
    const uint32_t side = place + kSideAt + lane / 4 * 4;
    scale[0] = halves(shared_word(side));
    scale[1] = halves(shared_word(side + 32));
    if (offsets) offset = halves(shared_word(side + 64));
  }
};

// These are the left operands of the four products of a group of 128 columns and 16 rows.
using BatchOperand = uint32_t[4][4];

// Makes operands of scalar codes. Product i has columns 32 i + 8 t + r of lane t of a quad: r < 4
// are the first half of the operand, r >= 4 the second.
template <typename Decoder>
struct BatchOperands {
  static constexpr BatchOrder kOrder = BatchOrder::eights;

  static __device__ __forceinline__ LevelTable table(LevelTable levels) {
    // Half of the lanes get the words from the other half. Without that the compiler keeps words
    // that all lanes share where permutes cannot read them, and moves one to a register for each
    // permute.
    const bool lower = threadIdx.x % 32 < 16;
#pragma unroll
    for (uint32_t& word : levels.words) {
      const uint32_t own = lower ? word : 0;
      word = own | __shfl_xor_sync(~0u, own, 16);
    }
    return levels;
  }

  template <int Group>
  static __device__ __forceinline__ void decode(const BatchCodes<Decoder>& codes,
                                                const LevelTable& table, BatchOperand& a) {
    const uint32_t* upper = codes.word + Group * 2 * Decoder::kVectors;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Decoder::decode(upper, i, table, a[i][0], a[i][2]);
      Decoder::decode(upper + Decoder::kVectors, i, table, a[i][1], a[i][3]);
    }
  }
};

// Makes operands of trellis codes. Products 2 h and 2 h + 1 have the columns 64 h + 16 t + r of
// lane t, eight each.
template <int Bits>
struct BatchOperands<TrellisDecoder<Bits>> {
  static constexpr BatchOrder kOrder = BatchOrder::tiles;
  using Decoder = TrellisDecoder<Bits>;

  static __device__ __forceinline__ LevelTable table(const LevelTable& levels) { return levels; }

  template <int Group>
  static __device__ __forceinline__ void decode(const BatchCodes<Decoder>& codes,
                                                const LevelTable& table, BatchOperand& a) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const auto stream = Decoder::stream(codes.word, codes.before, 2 * Group + h);
      quad<0>(stream, table.words[0], a[2 * h][0], a[2 * h][1]);
      quad<1>(stream, table.words[0], a[2 * h][2], a[2 * h][3]);
      quad<2>(stream, table.words[0], a[2 * h + 1][0], a[2 * h + 1][1]);
      quad<3>(stream, table.words[0], a[2 * h + 1][2], a[2 * h + 1][3]);
    }
  }

 private:
  template <int Quad>
  static __device__ __forceinline__ void quad(const typename Decoder::Stream& stream,
                                              uint32_t multiplier, uint32_t& upper,
                                              uint32_t& lower) {
    uint32_t p[4];
    Decoder::template products<Quad>(stream, multiplier, p);
    upper = Decoder::biased(p[0], p[1]) ^ 0x80808080u;
    lower = Decoder::biased(p[2], p[3]) ^ 0x80808080u;
  }
};

}  // namespace walsh::cuda::detail
