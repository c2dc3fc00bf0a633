// Loads the codes of a warp into registers and makes the f16 operands of wgmma from them:
// level / 128 * scale + offset, rounded once. Codes of 2 and 3 bits are looked up in tables of the
// operands of a row and 128 columns.
#pragma once

#include "codec/product/cuda/product_decoder.cuh"
#include "codec/scalar/cuda/code_decoder.cuh"
#include "codec/trellis/cuda/trellis_decoder.cuh"
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemm/batch_launch.h"
#include "kernels/cuda/gemm/batch_values.cuh"

namespace walsh::cuda::detail {

// Holds values of a lane's rows g and g + 8.
struct RowPair {
  __half2 row[2];

  // Unpacks two halves that lie side by side.
  __device__ __forceinline__ void load(uint32_t word) {
    const uint32_t low = permute(word, 0, 0x1010u), high = permute(word, 0, 0x3232u);
    row[0] = *reinterpret_cast<const __half2*>(&low);
    row[1] = *reinterpret_cast<const __half2*>(&high);
  }
};

// Is true if codes become operands by tables that have all operands of a row.
template <typename Decoder>
inline constexpr bool kWeightTables = kScalarBits<Decoder> == 2 || kScalarBits<Decoder> == 3;

// Holds the low and the high bytes of the f16 weights that the codes of a row stand for.
struct WeightTable {
  uint32_t low[2], high[2];

  // Makes the table; `levels` are pairs of levels / 128.
  template <int Bits>
  __device__ __forceinline__ void make(const LevelTable& levels, __half2 scale, __half2 offset) {
    uint32_t pairs[1 << (Bits - 1)];
#pragma unroll
    for (int i = 0; i < 1 << (Bits - 1); ++i) {
      const __half2 weights =
          __hfma2(*reinterpret_cast<const __half2*>(&levels.words[i]), scale, offset);
      pairs[i] = *reinterpret_cast<const uint32_t*>(&weights);
    }
#pragma unroll
    for (int i = 0; i < 1 << (Bits - 2); ++i) {
      low[i] = permute(pairs[2 * i], pairs[2 * i + 1], 0x6420u);
      high[i] = permute(pairs[2 * i], pairs[2 * i + 1], 0x7531u);
    }
  }
  // Looks up the codes in the four lowest selectors.
  template <int Bits>
  __device__ __forceinline__ void look_up(uint32_t select, uint32_t& first,
                                          uint32_t& second) const {
    constexpr int kUpper = Bits == 3 ? 1 : 0;
    const uint32_t lower = permute(low[0], low[kUpper], select);
    const uint32_t upper = permute(high[0], high[kUpper], select);
    first = permute(lower, upper, 0x5140u);
    second = permute(lower, upper, 0x7362u);
  }
};

// Holds a warp's codes of a k-tile, the scales of both chunks of 128 columns, and the offsets.
template <typename Decoder>
struct BatchCodes {
  // Scales of both chunks come first, then offsets.
  static constexpr int kSideAt = Decoder::kVectors * 512;
  static constexpr int kBytes = kSideAt + 128;

  uint32_t word[4 * Decoder::kVectors];
  uint32_t before[4];  // For trellis codes it has the first words of the lane before.
  RowPair scale[2], offset;
  // These are for both rows, for the current chunk of 128 columns.
  WeightTable table[2];

  __device__ __forceinline__ void load(uint32_t place, float offset_factor) {
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
    scale[0].load(shared_word(side));
    scale[1].load(shared_word(side + 32));
    offset.row[0] = offset.row[1] = __float2half2_rn(0.0f);
    if (offset_factor != 0) {  // There are offsets.
      const float2 rows = halves(shared_word(side + 64));
      offset.row[0] = __float2half2_rn(rows.x * offset_factor);
      offset.row[1] = __float2half2_rn(rows.y * offset_factor);
    }
  }
};

// Makes weights of one row from four bytes, which are levels plus 128.
__device__ __forceinline__ void weigh_levels(uint32_t levels, __half2 scale, __half2 offset,
                                             uint32_t& first, uint32_t& second) {
  // The half 0x6400 + u is 1024 + u.
  const uint32_t words[2] = {permute(levels, 0x64646464u, 0x4140u),
                             permute(levels, 0x64646464u, 0x4342u)};
  uint32_t out[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const __half2 level =
        __hfma2(*reinterpret_cast<const __half2*>(&words[i]), __float2half2_rn(1 / kBatchLevelUnit),
                __float2half2_rn(-1152 / kBatchLevelUnit));
    const __half2 weight = __hfma2(level, scale, offset);
    out[i] = *reinterpret_cast<const uint32_t*>(&weight);
  }
  first = out[0], second = out[1];
}

// Makes operands of scalar codes. Product j of a chunk has the columns 32 (j / 2) + 8 t + 4 (j % 2)
// + r (r < 4) of lane t of a quad: r = 0 and 1 stand in the first half of the operand, 2 and 3 in
// the second.
template <typename Decoder>
struct BatchOperands {
  static constexpr BatchOrder kOrder = BatchOrder::eights;

  static __device__ __forceinline__ LevelTable table(LevelTable levels) {
    // Half of the lanes get the words from the other half. Without that the compiler keeps words
    // that all lanes share where permutes cannot read them, and moves one to a register for each
    // permute.
    const bool lower = threadIdx.x % 32 < 16;
    const LevelTable bytes = levels;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t& word = levels.words[i];
      if constexpr (kWeightTables<Decoder>) {
        const uint32_t two = bytes.words[i / 2] >> (i % 2 * 16);
        word =
            pair_of(signed_byte(two, 0) / kBatchLevelUnit, signed_byte(two, 1) / kBatchLevelUnit);
      } else {
        word ^= 0x80808080u;
      }
      const uint32_t own = lower ? word : 0;
      word = own | __shfl_xor_sync(~0u, own, 16);
    }
    return levels;
  }

  template <int Chunk>
  static __device__ __forceinline__ void decode(BatchCodes<Decoder>& codes, const LevelTable& table,
                                                uint32_t (&a)[kBatchProducts][4]) {
    const uint32_t* words = codes.word + Chunk / 2 * 2 * Decoder::kVectors;
    if constexpr (kWeightTables<Decoder>) {
      look_up<Chunk>(codes, words, table, a);
    } else {
      weigh<Chunk>(codes, words, table, a);
    }
  }

 private:
  template <int Chunk>
  static __device__ __forceinline__ void weigh(const BatchCodes<Decoder>& codes,
                                               const uint32_t* words, const LevelTable& table,
                                               uint32_t (&a)[kBatchProducts][4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        uint32_t low, high;
        Decoder::decode(words + row * Decoder::kVectors, Chunk % 2 * 2 + i, table, low, high);
        const __half2 scale = codes.scale[Chunk / 2].row[row], offset = codes.offset.row[row];
        weigh_levels(low, scale, offset, a[2 * i][row], a[2 * i][row + 2]);
        weigh_levels(high, scale, offset, a[2 * i + 1][row], a[2 * i + 1][row + 2]);
      }
    }
  }

  template <int Chunk>
  static __device__ __forceinline__ void look_up(BatchCodes<Decoder>& codes, const uint32_t* words,
                                                 const LevelTable& levels,
                                                 uint32_t (&a)[kBatchProducts][4]) {
    constexpr int kBits = kScalarBits<Decoder>;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      WeightTable& table = codes.table[row];
      if (Chunk % 2 == 0)
        table.make<kBits>(levels, codes.scale[Chunk / 2].row[row], codes.offset.row[row]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t select =
            scalar::octet<kBits>(words + row * Decoder::kVectors, Chunk % 2 * 2 + i);
        table.look_up<kBits>(select, a[2 * i][row], a[2 * i][row + 2]);
        table.look_up<kBits>(upper_half(select), a[2 * i + 1][row], a[2 * i + 1][row + 2]);
      }
    }
  }
};

// Makes operands of trellis codes. Product j of a chunk has quad j of each of the four tiles, which
// are columns 16 t + 4 j + r.
template <int Bits>
struct BatchOperands<TrellisDecoder<Bits>> {
  static constexpr BatchOrder kOrder = BatchOrder::tiles;
  using Decoder = TrellisDecoder<Bits>;

  static __device__ __forceinline__ LevelTable table(const LevelTable& levels) { return levels; }

  template <int Chunk>
  static __device__ __forceinline__ void decode(BatchCodes<Decoder>& codes, const LevelTable& table,
                                                uint32_t (&a)[kBatchProducts][4]) {
    const auto stream = Decoder::stream(codes.word, codes.before, Chunk);
    quad<0>(stream, codes, Chunk / 2, table.words[0], a[0]);
    quad<1>(stream, codes, Chunk / 2, table.words[0], a[1]);
    quad<2>(stream, codes, Chunk / 2, table.words[0], a[2]);
    quad<3>(stream, codes, Chunk / 2, table.words[0], a[3]);
  }

 private:
  template <int Quad>
  static __device__ __forceinline__ void quad(const typename Decoder::Stream& stream,
                                              const BatchCodes<Decoder>& codes, int group,
                                              uint32_t multiplier, uint32_t (&a)[4]) {
    uint32_t s[4];
    Decoder::template products<Quad>(stream, multiplier, s);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      weigh_levels(Decoder::biased(s[2 * row], s[2 * row + 1]), codes.scale[group].row[row],
                   codes.offset.row[row], a[row], a[row + 2]);
    }
  }
};

}  // namespace walsh::cuda::detail
