// Adds up a k-tile of trellis codes in integers (gemv/k_tile_dot.cuh).
//
// A tensor core product takes four columns of each of the four tiles of a group (trellis_layout.h),
// which are one quad of each lane for rows g and g + 8. A register of the inputs holds every pair
// of columns twice, x0 x1 x0 x1. A single vector may be stored that way in shared memory
// (`Doubled`), per k-tile as [group][half][lane t][16]; otherwise, and always for several vectors,
// inputs are stored in the order of other codes, and permutes double the registers.
#pragma once

#include "codec/trellis/cuda/trellis_decoder.cuh"
#include "kernels/cuda/async.cuh"

namespace walsh::cuda {

// Says where a lane reads operand b of a chunk, relative to the k-tile's inputs. b[n] is the offset
// of its vector in n-tile n; the other 16 bytes are at this offset xor 16.
template <int NTiles>
struct InputPlaces {
  uint32_t b[NTiles];
  uint32_t chunk;   // Chunks are this far apart.
  uint32_t scales;  // The inputs' scales begin at this offset.
};

// Returns the offset at which 8 neighbouring bytes of a k-tile of q (Activations::q) are stored
// doubled, as 16 bytes.
__device__ __forceinline__ int doubled_place(int piece) {
  const int tile = piece / 8 % 2 + piece % 2 * 2, half = piece / 4 % 2;
  return (piece / 16 * 2 + piece / 2 % 2) * 128 + half * 64 + tile * 16;
}

// Doubles four inputs, in two registers.
__device__ __forceinline__ uint2 doubled(uint32_t quad) {
  return make_uint2(permute(quad, 0, 0x1010u), permute(quad, 0, 0x3232u));
}

// Returns the correction of the sum of bytes over a group of inputs with this sum, which is stored
// as the second member of the group's scale in shared memory.
__device__ __forceinline__ float zero_member(int sum) {
  return __int_as_float(-kTrellisZero * sum);
}

template <typename Decoder, int Tiles8, bool Doubled>
struct TrellisDot {
  static constexpr int kNTiles = Tiles8 == 0 ? 1 : Tiles8;
  // There are several sums, so that products do not wait for each other.
  static constexpr int kChains = Tiles8 > 0 ? 1 : 2;

  using Stream = typename Decoder::Stream;
  using Places = InputPlaces<kNTiles>;

  struct Sums {
    int part[kChains][kNTiles][4] = {};

    __device__ __forceinline__ void add(int quad, int n, const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
      int(&sum)[4] = part[quad % kChains][n];
      mma_int8(sum, a, b0, b1, sum);
    }
    // Subtracts kTrellisZero from every level of columns whose sum of inputs is not known.
    __device__ __forceinline__ void add_zeros(int n, uint32_t b0, uint32_t b1) {
      constexpr uint32_t kZeros = 0x00000101u * (256 - kTrellisZero);
      const uint32_t a[4] = {kZeros, kZeros, kZeros, kZeros};
      mma_int8(part[0][n], a, b0, b1, part[0][n]);
    }
    // Returns the sum of levels. `zero` is -kTrellisZero times the inputs' sum, or 0 if that was
    // subtracted already.
    __device__ __forceinline__ int of(int n, int i, int zero) const {
      int sum = zero;
#pragma unroll
      for (int c = 0; c < kChains; ++c)
        sum += part[c][n][i];
      return sum;
    }
  };

  // Adds group `q` of the k-tile, with inputs at x.
  static __device__ __forceinline__ void add_group(const Stream& s, uint32_t multiplier, uint32_t x,
                                                   const Places& p, int q, Sums& sums) {
    add_half<0>(s, multiplier, x, p, q,
                [&](int quad, int n, const auto& a, uint32_t b0, uint32_t b1) {
                  sums.add(quad, n, a, b0, b1);
                });
    add_half<1>(s, multiplier, x, p, q,
                [&](int quad, int n, const auto& a, uint32_t b0, uint32_t b1) {
                  sums.add(quad, n, a, b0, b1);
                });
  }

  // Adds a group with separate sums for the two blocks of 32 columns, which are two tiles, or two
  // lanes of four.
  static __device__ __forceinline__ void add_blocks(const Stream& s, uint32_t multiplier,
                                                    uint32_t x, const Places& p, int q,
                                                    Sums (&sums)[2]) {
    const bool second = threadIdx.x / 2 % 2 != 0;
    const auto add = [&](int quad, int n, const auto& a, uint32_t b0, uint32_t b1) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const bool mine = second == (k == 1);
        sums[k].add(quad, n, a, mine ? b0 : 0u, mine ? b1 : 0u);
        sums[k].add_zeros(n, mine ? b0 : 0u, mine ? b1 : 0u);
      }
    };
    add_half<0>(s, multiplier, x, p, q, add);
    add_half<1>(s, multiplier, x, p, q, add);
  }

 private:
  // Calls add(quad, n, a, b0, b1) for quads 2 Half and 2 Half + 1.
  template <int Half, typename Add>
  static __device__ __forceinline__ void add_half(const Stream& s, uint32_t multiplier, uint32_t x,
                                                  const Places& p, int q, const Add& add) {
    uint32_t b[kNTiles][4];
#pragma unroll
    for (int n = 0; n < kNTiles; ++n)
      load_inputs(x, p, n, q, Half, b[n]);
    uint32_t first[4], second[4];
    Decoder::template products<2 * Half>(s, multiplier, first);
    add_quad(
        2 * Half, first, [&](int n) { return make_uint2(b[n][0], b[n][1]); }, add);
    Decoder::template products<2 * Half + 1>(s, multiplier, second);
    add_quad(
        2 * Half + 1, second, [&](int n) { return make_uint2(b[n][2], b[n][3]); }, add);
  }

  template <typename Inputs, typename Add>
  static __device__ __forceinline__ void add_quad(int quad, const uint32_t (&s)[4],
                                                  const Inputs& inputs, const Add& add) {
    constexpr uint32_t kBits = 0x7f7f7f7fu;
    const uint32_t a[4] = {s[0] & kBits, s[2] & kBits, s[1] & kBits, s[3] & kBits};
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
      const uint2 b = inputs(n);
      add(quad, n, a, b.x, b.y);
    }
  }

  // Loads the operands of two quads, doubled.
  static __device__ __forceinline__ void load_inputs(uint32_t x, const Places& p, int n, int q,
                                                     int half, uint32_t (&b)[4]) {
    if constexpr (Doubled) {
      const uint4 w = shared_words(x + p.b[0] + (q * 128 + half * 64));
      b[0] = w.x, b[1] = w.y, b[2] = w.z, b[3] = w.w;
      return;
    }
    // In the order of other codes lane t has columns 8 t .. 8 t + 7 of each 32. Here it needs 16 t
    // .. 16 t + 15 of 64.
    const uint32_t at = (p.b[n] & ~0x60u) | (p.b[n] & 0x20u) << 1 | (p.b[n] & 0x40u) >> 3;
    const uint32_t place = Tiles8 == 0 ? x + at + (q / 2 * 128 + q % 2 * 16 + half * 32)
                                       : x + q / 2 * p.chunk + (at ^ (q % 2 * 16)) + half * 32;
    const float2 w = shared_float2(place);
    const uint2 low = doubled(__float_as_uint(w.x)), high = doubled(__float_as_uint(w.y));
    b[0] = low.x, b[1] = low.y, b[2] = high.x, b[3] = high.y;
  }
};

}  // namespace walsh::cuda
