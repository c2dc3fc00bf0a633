// Decodes hash trellis codes (codec/trellis/trellis.h, TrellisRule::bytes) from a lane's words
// (codec/trellis/cuda/trellis_layout.h).
//
// A lane has sixteen consecutive steps of one tile for each group of 64 columns. Their states
// extend 16 - k bits back into the steps of the previous lane. So a lane's bits of a group,
// together with the lowest word of that lane, are one bit stream that begins at a word, and the
// position of every state is known at compile time.
//
// The four bytes of a product, seven bits each, are operands of tensor cores, against inputs x0 x1
// x0 x1. No table is needed.
#pragma once

#include "codec/cuda/matrix_code.h"
#include "codec/cuda/permute.cuh"
#include "codec/trellis/cuda/trellis_layout.h"

namespace walsh::cuda {

inline constexpr int kTrellisZero = 127;  // A sum of two bytes exceeds its level by this.

// Decodes for one lane. `Bits` is TrellisCode::step_bits.
template <int Bits>
struct TrellisDecoder {
  static constexpr DecoderKind kKind =
      static_cast<DecoderKind>(static_cast<int>(DecoderKind::trellis4) + Bits - 4);
  static constexpr int kWords = code_words(kKind), kVectors = code_vectors(kKind);
  static constexpr bool kSplit = false, kTable = false;
  static constexpr bool kUnitLevels = true;

  // Holds the bits of sixteen steps, the newest step lowest, followed by bits of the previous lane.
  static constexpr int kWhole = Bits / 2;  // This many words contain only a lane's own bits.
  struct Stream {
    uint32_t word[kWhole + 1];
  };

  // Returns the bits of group `q`. `before` has the first word of each group of the previous lane.
  static __device__ __forceinline__ Stream stream(const uint32_t* words, const uint32_t* before,
                                                  int q) {
    Stream s;
#pragma unroll
    for (int i = 0; i < kWhole; ++i)
      s.word[i] = words[4 * i + q];
    if constexpr (Bits % 2 == 0) {
      s.word[kWhole] = before[q];
    } else {
      s.word[kWhole] = permute(words[4 * kWhole + q / 2], before[q], q % 2 ? 0x5432u : 0x5410u);
    }
    return s;
  }

  // Returns the state of a step, counted from the newest one. Left shifts are multiplications,
  // whose pipe has time to spare. A field that spans two words is shifted as a pair, which balances
  // the two pipes.
  template <int Step>
  static __device__ __forceinline__ uint32_t state(const Stream& s) {
    constexpr int kWord = Step * Bits / 32, kShift = Step * Bits % 32;
    const uint32_t word = s.word[kWord];
    if constexpr (kShift == 0) {
      return word & 0xffffu;
    } else if constexpr (kShift == 8) {
      return permute(word, 0, 0x4421u);
    } else if constexpr (kShift == 16) {
      return permute(word, 0, 0x4432u);
    } else if constexpr (kShift < 16) {
      return permute(shift_by_product<16 - kShift>(word), 0, 0x4432u);
    } else {
      return __funnelshift_r(word, s.word[kWord + 1], kShift) & 0xffffu;
    }
  }

  // Computes the hash products of the four steps of quad `Quad` of columns: row g with columns 0
  // and 1, then with 2 and 3, then the same for row g + 8.
  template <int Quad>
  static __device__ __forceinline__ void products(const Stream& s, uint32_t multiplier,
                                                  uint32_t (&p)[4]) {
    p[0] = state<15 - 4 * Quad>(s) * multiplier;
    p[1] = state<14 - 4 * Quad>(s) * multiplier;
    p[2] = state<13 - 4 * Quad>(s) * multiplier;
    p[3] = state<12 - 4 * Quad>(s) * multiplier;
  }

  // Returns level + 128, as bytes, for the four columns of two hash products.
  static __device__ __forceinline__ uint32_t biased(uint32_t p, uint32_t q) {
    const uint32_t low = permute(p, q, 0x5410u), high = permute(p, q, 0x7632u);
    return (low & 0x7f7f7f7fu) + (high & 0x7f7f7f7fu) + 0x01010101u;
  }

  // Computes level + 128, as bytes, for eight columns of row g + 8 `half`: those of quads 0 and 1,
  // or of 2 and 3 if `upper`.
  static __device__ __forceinline__ void decode_bytes(const Stream& s, int upper, int half,
                                                      uint32_t multiplier, uint32_t& low,
                                                      uint32_t& high) {
    // Selects the eight steps of these quads, starting with the newest of the row's second quad.
    Stream own = s;
    if (!upper) own = older<8 * Bits>(own);
    if (!half) own = older<2 * Bits>(own);
    low = biased(state<5>(own) * multiplier, state<4>(own) * multiplier);
    high = biased(state<1>(own) * multiplier, state<0>(own) * multiplier);
  }

 private:
  // Returns the stream without its newest `From` bits.
  template <int From>
  static __device__ __forceinline__ Stream older(const Stream& s) {
    constexpr int kSkip = From / 32, kShift = From % 32;
    Stream out{};
#pragma unroll
    for (int i = 0; i + kSkip <= kWhole; ++i) {
      const uint32_t next = i + kSkip < kWhole ? s.word[i + kSkip + 1] : 0;
      out.word[i] = __funnelshift_r(s.word[i + kSkip], next, kShift);
    }
    return out;
  }
};

}  // namespace walsh::cuda
