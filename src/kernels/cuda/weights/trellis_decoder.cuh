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

// The bits of eight steps and what their states reach back to, the newest step lowest: bits
// 16 i .. 16 i + 31 for every i that a state begins in.
struct StepWindow {
  uint32_t from[4];

  // The state that begins at bit `Begin`. Shifts to the left are products, which have another pipe
  // than shifts, masks and permutes have.
  template <int Begin>
  __device__ __forceinline__ uint32_t state() const {
    constexpr int kShift = Begin % 16;
    const uint32_t word = from[Begin / 16];
    if constexpr (kShift == 0) {
      return word & 0xffffu;
    } else if constexpr (kShift == 8) {
      return permute(word, 0, 0x4421u);
    } else {
      uint32_t left;
      asm("mul.lo.u32 %0, %1, %2;" : "=r"(left) : "r"(word), "n"(1 << (16 - kShift)));
      return permute(left, 0, 0x4432u);
    }
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
    const uint32_t two = odd ? 0x7632u : 0x5432u;  // the upper half of one, a half of the other
    StepWindow w{};
    w.from[0] = permute(last, low, odd ? 0x5432u : 0x5410u);
    w.from[1] = low;
    if constexpr (Bits == 4) w.from[1] = permute(low, older, odd ? 0x7610u : 0x5410u);
    if constexpr (Bits == 5) {
      w.from[1] = permute(low, older, odd ? 0x6210u : 0x4210u);
      w.from[2] = permute(low, older, odd ? 0x0762u : 0x0542u);
    }
    if constexpr (Bits == 6) w.from[2] = permute(low, older, two);
    if constexpr (Bits == 7) {
      const int end = begin + 4;  // the place of the last byte among those of all blocks
      w.from[3] =
          permute(rest[end / 4], older, static_cast<uint32_t>(end % 4) | (odd ? 0x760u : 0x540u));
      w.from[2] = permute(low, w.from[3], 0x5432u);
    }
    if constexpr (Bits == 8) {
      const uint32_t end = rest[(begin + 4) / 4];
      const bool upper = (begin + 4) % 4 != 0;
      w.from[2] = permute(low, end, upper ? 0x7632u : 0x5432u);
      w.from[3] = permute(end, older, (upper ? 0x32u : 0x10u) | (odd ? 0x7600u : 0x5400u));
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
    const StepWindow w = window(words, before, b);
    const int newer = half ? 0 : 2 * Bits;  // bits of the other row's steps after the last of these
    const uint32_t third = Bits == 4 ? w.from[1] >> 16 : w.from[2];
    const uint32_t last = __funnelshift_r(w.from[0], third, newer);
    const uint32_t next = __funnelshift_r(third, w.from[3] >> 16, newer);
    const auto product = [&](int bit) {
      const uint32_t word = bit < 32 ? __funnelshift_r(last, next, bit) : next >> (bit - 32);
      return (word & 0xffffu) * multiplier;
    };
    const uint32_t low = biased(product(5 * Bits), product(4 * Bits));
    const uint32_t high = biased(product(Bits), product(0));
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
