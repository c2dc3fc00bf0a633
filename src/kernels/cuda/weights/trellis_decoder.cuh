// Trellis codes of one product per step (formats/trellis.h, TrellisRule::bytes) in a lane's words
// (weights/matrix.h).
//
// Of a block of 32 columns a lane has eight steps, which follow each other in one tile: those of
// rows g and g + 8 in the columns of its operands. Their states reach 16 - k bits back into the
// steps of the lane before, whose last 16 bits come by a shuffle.
//
// The four bytes of a product are operands of tensor cores as they are, against inputs x0 x1 x0 x1:
// the sum over unsigned bytes and that over signed ones count the upper bit of a byte once up and
// once down, so that half of both together is the sum over the seven bits below. No mask, no table.
#pragma once

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/weights/code_decoder.cuh"

namespace walsh::cuda {

// A window of up to 80 bits, the newest step at its lowest bits.
struct StepWindow {
  uint32_t word[3];

  // The state that begins at bit `Begin`.
  template <int Begin>
  __device__ __forceinline__ uint32_t state() const {
    constexpr int kWord = Begin / 32, kShift = Begin % 32;
    if constexpr (kShift == 8) return __byte_perm(word[kWord], 0, 0x4421);
    if constexpr (kShift == 16) return word[kWord] >> 16;
    if constexpr (kShift < 16) return word[kWord] >> kShift & 0xffffu;
    return __funnelshift_r(word[kWord], word[kWord + 1 < 3 ? kWord + 1 : 2], kShift) & 0xffffu;
  }
  // Without the newest `bits` bits, fewer than 32.
  __device__ __forceinline__ StepWindow after(int bits) const {
    return {__funnelshift_r(word[0], word[1], bits), __funnelshift_r(word[1], word[2], bits),
            word[2] >> bits};
  }
};

// Of TrellisCode::step_bits.
template <int Bits>
struct TrellisDecoder {
  static constexpr DecoderKind kKind =
      static_cast<DecoderKind>(static_cast<int>(DecoderKind::trellis4) + Bits - 4);
  static constexpr int kWords = code_words(kKind), kVectors = code_vectors(kKind);
  static constexpr bool kSplit = false, kTable = false;
  static constexpr bool kUnitLevels = true;
  static constexpr bool kTrellis = true;
  static constexpr int kBlocks = 8, kSteps = 8;  // of a k-tile, of a block
  static constexpr int kZero = 127;              // what a sum of bytes is more than its level

  // The last bits of the lanes before, for every two blocks.
  struct Before {
    uint32_t word[4];

    __device__ __forceinline__ Before(const uint32_t* words, int lane) {
      const int from = lane & 1 ? lane - 1 : (lane + 29) & 31;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        word[i] = __shfl_sync(~0u, words[i], from);
    }
  };

  // The window of the eight steps of block b.
  static __device__ __forceinline__ StepWindow window(const uint32_t* words, const Before& before,
                                                      int b) {
    constexpr int kRest = Bits - 2;  // bytes of a block beside its last two
    const uint32_t* rest = words + 4;
    const int odd = b % 2, begin = kRest * b, word = begin / 4, shift = 8 * (begin % 4);
    const uint32_t last = words[b / 2], older = before.word[b / 2];
    const uint32_t low =
        shift == 0 ? rest[word] : __funnelshift_r(rest[word], rest[next_word(word)], shift);
    StepWindow w{};
    w.word[0] = __byte_perm(last, low, odd ? 0x5432 : 0x5410);
    const uint32_t two = odd ? 0x7632 : 0x5432, ctx = odd ? older >> 16 : older;
    if constexpr (Bits == 4) w.word[1] = ctx;
    if constexpr (Bits == 5) w.word[1] = __byte_perm(low, older, odd ? 0x0762 : 0x0542);
    if constexpr (Bits == 6) w.word[1] = __byte_perm(low, older, two);
    if constexpr (Bits == 7) {
      const int last_byte = begin + 4;  // its place among the bytes of H
      const uint32_t end = __byte_perm(
          rest[last_byte / 4], older, static_cast<uint32_t>(last_byte % 4) | (odd ? 0x760 : 0x540));
      w.word[1] = __byte_perm(low, end, 0x5432);
      w.word[2] = end >> 16;
    }
    if constexpr (Bits == 8) {
      const uint32_t end = rest[(begin + 4) / 4];
      w.word[1] = __byte_perm(low, (begin + 4) % 4 ? end >> 16 : end, 0x5432);
      w.word[2] = ctx;
    }
    return w;
  }

  // Products of a block's steps, the oldest first: of the first quad of columns those of row g,
  // then of row g + 8, then the same of the second.
  static __device__ __forceinline__ void products(const StepWindow& w, uint32_t multiplier,
                                                  uint32_t (&p)[kSteps]) {
    p[0] = w.template state<7 * Bits>() * multiplier;
    p[1] = w.template state<6 * Bits>() * multiplier;
    p[2] = w.template state<5 * Bits>() * multiplier;
    p[3] = w.template state<4 * Bits>() * multiplier;
    p[4] = w.template state<3 * Bits>() * multiplier;
    p[5] = w.template state<2 * Bits>() * multiplier;
    p[6] = w.template state<Bits>() * multiplier;
    p[7] = w.template state<0>() * multiplier;
  }

  // The f16 levels of block b of row g + 8 half; pairs as in ScalarDecoder.
  static __device__ __forceinline__ void decode_f16(const uint32_t* words, const Before& before,
                                                    int b, int half, uint32_t multiplier,
                                                    uint32_t (&pairs)[4]) {
    const StepWindow w = window(words, before, b).after(half ? 0 : 2 * Bits);
    const uint32_t low = biased(w.template state<5 * Bits>() * multiplier,
                                w.template state<4 * Bits>() * multiplier);
    const uint32_t high =
        biased(w.template state<Bits>() * multiplier, w.template state<0>() * multiplier);
    bytes_to_f16(low, high, pairs);
  }

 private:
  static constexpr int kRestWords = kWords - 4;

  static __device__ __forceinline__ constexpr int next_word(int word) {
    return word + 1 < kRestWords ? word + 1 : word;
  }
  // The levels of two steps plus 128.
  static __device__ __forceinline__ uint32_t biased(uint32_t p, uint32_t q) {
    const uint32_t low = __byte_perm(p, q, 0x5410), high = __byte_perm(p, q, 0x7632);
    return (low & 0x7f7f7f7fu) + (high & 0x7f7f7f7fu) + 0x01010101u;
  }
};

}  // namespace walsh::cuda
