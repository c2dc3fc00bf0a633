// Holds a tile of stored keys or values in a lane's registers (attention/coded_tile.cuh), and
// multiplies it. Keys are multiplied as integers. Their levels are int8, and a query is an int8
// plane and a second one of 1/256, so a value has 15 bits. Codes of values become halves.
#pragma once

#include "kernels/cuda/attention/coded_tile.cuh"

namespace walsh::cuda {

// Copies N words, which are aligned to their size up to 16 bytes.
template <int N>
__device__ __forceinline__ void load_words(const void* from, uint32_t (&to)[N]) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const uint4 v = __ldg(static_cast<const uint4*>(from) + i / 4);
      to[i] = v.x;
      to[i + 1] = v.y;
      to[i + 2] = v.z;
      to[i + 3] = v.w;
    }
  } else {
    static_assert(N == 2);
    const uint2 v = __ldg(static_cast<const uint2*>(from));
    to[0] = v.x;
    to[1] = v.y;
  }
}

// Holds the codes of a lane and the scales of its positions, `Each` words of them per 32 columns.
template <int Dim, int Bits, int Each>
struct StoredTile {
  static constexpr int kWords = Dim * Bits / 64, kChunks = Dim / 32;
  uint32_t codes[kWords];
  uint32_t scales[kChunks * Each];

  // Loads this lane's words of codes, and the scales at `place`, because several lanes share a
  // scale.
  __device__ __forceinline__ void load(const unsigned char* tile, int groups, int place, int lane) {
    const auto* words = reinterpret_cast<const uint32_t*>(tile) + lane;
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      codes[i] = __ldg(words + 32 * i);
    const unsigned char* side = tile + tile_code_bytes(Dim, Bits) + 4 * Each * groups * place;
    if (groups > 1) return load_words(side, scales);
#pragma unroll
    for (int i = 0; i < Each; ++i) {
      const uint32_t scale = __ldg(reinterpret_cast<const uint32_t*>(side) + i);
#pragma unroll
      for (int b = 0; b < kChunks; ++b)
        scales[b * Each + i] = scale;
    }
  }
};

// Holds stored keys: lane 4 g + t has codes of keys g and g + 8.
template <int Dim, int Bits>
struct StoredKeys : StoredTile<Dim, Bits, 1> {
  __device__ __forceinline__ void load(const unsigned char* tile, int groups, int lane) {
    StoredTile<Dim, Bits, 1>::load(tile, groups, lane / 4, lane);
  }

  // Computes s = K Q^T, which the caller has to multiply by the scales of levels and queries. q[32
  // * b] are the queries of columns 32 b .. as operands of this lane, which are two words of each
  // plane.
  __device__ __forceinline__ void multiply(const ByteLevels& levels, const uint4* q,
                                           float (&s)[4]) const {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      s[e] = 0;
    const auto add = [&](int b, const uint32_t(&a)[4]) {
      const uint4 x = q[32 * b];
      const int zeros[4] = {};
      int sum[4];
      mma_int8(sum, a, x.x, x.y, zeros);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sum[e] *= 256;
      const int near[4] = {sum[0], sum[1], sum[2], sum[3]};
      mma_int8(sum, a, x.z, x.w, near);
      const float2 scale = halves(this->scales[b]);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[e] = __fmaf_rn(static_cast<float>(sum[e]), e < 2 ? scale.x : scale.y, s[e]);
    };
    if constexpr (Bits == 8) {
      constexpr uint32_t kSigns = 0x80808080u;
      const uint32_t* c = this->codes;
#pragma unroll
      for (int b = 0; b < Dim / 32; ++b) {
        const uint32_t a[4] = {c[4 * b] ^ kSigns, c[4 * b + 2] ^ kSigns, c[4 * b + 1] ^ kSigns,
                               c[4 * b + 3] ^ kSigns};
        add(b, a);
      }
    } else {
      uint32_t a[4];
      each_nibbles<Bits, Dim>([&](int i) { return this->codes[i]; },
                              [&](int i, uint32_t nibbles) {
                                decode_bytes<Bits>(nibbles, levels, a[i % 2], a[i % 2 + 2]);
                                if (i % 2 == 1) add(i / 2, a);
                              });
    }
  }
};

// Holds stored values: lane 4 g + t has scales of values 2 t, 2 t + 1, 2 t + 8, 2 t + 9.
template <int Dim, int Bits>
struct StoredValues : StoredTile<Dim, Bits, 2> {
  __device__ __forceinline__ void load(const unsigned char* tile, int groups, int lane) {
    StoredTile<Dim, Bits, 2>::load(tile, groups, lane % 4, lane);
  }

  // Masks the scales of positions before `low`, because a weight of 0 does not hide a NaN.
  __device__ __forceinline__ void hide(int low, int lane) {
    if (low <= 0) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t mask = seen_mask(2 * (lane % 4) + 8 * i, low);
#pragma unroll
      for (int b = 0; b < Dim / 32; ++b)
        this->scales[2 * b + i] &= mask;
    }
  }

  // Adds the values, weighed. Sums are of columns 16 d + g and 16 d + g + 8.
  __device__ __forceinline__ void add(const HalfLevels& levels, uint32_t b0, uint32_t b1,
                                      Running<Dim>& run) const {
    uint32_t p0 = 0, p1 = 0;
    decode_lane<Bits, Dim>([&](int i) { return this->codes[i]; }, levels,
                           [&](int i, const uint32_t(&half)[4]) {
                             if (i % 2 == 0) {
                               p0 = multiply_halves(b0, this->scales[i]);
                               p1 = multiply_halves(b1, this->scales[i + 1]);
                             }
                             const uint32_t a[4] = {half[0], half[2], half[1], half[3]};
                             mma_f16(run.sum[i], a, p0, p1);
                           });
  }
};

}  // namespace walsh::cuda
