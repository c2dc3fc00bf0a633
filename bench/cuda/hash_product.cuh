// A prototype product of one to sixteen int8 vectors with a matrix in a candidate of hash_code.h:
// what its decoding costs on a GPU. Layout and kernel are experiments, not those of kernels/cuda.
//
// A unit is 16 rows x 128 columns, eight tiles. Lane 4 g + q of a warp has, of every tile, the four
// steps that decode to columns 4 q .. 4 q + 3 of rows g and g + 8: k bits each, and the 16 - k bits
// before them, which are the lowest of the lane before. A lane's words of a unit are
//   W[4]      bits 0..15 of its own bits of tiles 2 i and 2 i + 1
//   H[k - 4]  the rest of them, 4 k - 16 bits per tile, one tile after the other
// in memory first W of all lanes, then H of all lanes in vectors of 16, 8 and 4 bytes.
//
// Bytes of products are operands of mma.m16n8k32 as they are. The upper bit of a byte weighs 128 or
// -128 by the type of the operand, so sums over both types make its weight free; masks do the same
// for other bits. Sums of all readings together are exact levels (finish). A table of 128 bytes has
// one word per bank of shared memory, so 32 lookups never conflict.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "hash_code.h"
#include "kernels/cuda/async.cuh"

namespace walsh::cuda {

inline constexpr int kHashUnitColumns = 128, kHashTiles = 8;

struct HashProductArgs {
  const uint32_t* weights;  // [tile rows][units][32 lanes][k words]
  const int8_t* x;          // [vectors][cols]
  const float* scales;      // [vectors][cols / 256]
  const int* sums;          // [vectors][cols / 256] of x
  float* y;                 // [vectors][rows], added to
  int rows, cols;
  uint32_t multiplier, second;  // for rules of one byte multiples of 2^10
  int8_t table[128];            // for table7
};

// mma.m16n8k32 of unsigned or signed bytes a with signed bytes b.
template <bool kSigned>
__device__ __forceinline__ void mma_bytes(int (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1) {
  if constexpr (kSigned) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// How a rule reads the bytes of products: `kReadings` sums per row and vector.
template <HashRule kRule>
struct HashReadings {
  static constexpr int kReadings = kRule == HashRule::raw2 || kRule == HashRule::raw4 ? 1
                                   : kRule == HashRule::flat                          ? 1
                                   : kRule == HashRule::table7                        ? 1
                                   : kRule == HashRule::fine                          ? 4
                                                                                      : 3;

  static __device__ __forceinline__ void masked(uint32_t (&out)[4], const uint32_t (&a)[4],
                                                uint32_t mask) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      out[i] = a[i] & mask;
  }

  // a: bytes of products, or of their upper halves for rules of one byte.
  static __device__ __forceinline__ void add(int (&sum)[kReadings][4], const uint32_t (&a)[4],
                                             uint32_t b0, uint32_t b1) {
    mma_bytes<kRule == HashRule::table7>(sum[0], a, b0, b1);
    if constexpr (kRule == HashRule::flat) mma_bytes<true>(sum[0], a, b0, b1);
    if constexpr (kReadings >= 3) {
      mma_bytes<true>(sum[1], a, b0, b1);
      uint32_t some[4];
      masked(some, a,
             kRule == HashRule::bell   ? 0xbfbfbfbfu
             : kRule == HashRule::bits ? 0x0f0f0f0fu
                                       : 0x07070707u);
      mma_bytes<false>(sum[2], some, b0, b1);
      if constexpr (kRule == HashRule::fine) {
        masked(some, a, 0x1f1f1f1fu);
        mma_bytes<false>(sum[kReadings - 1], some, b0, b1);
      }
    }
  }

  // The sum of levels + bias of row part i.
  static __device__ __forceinline__ int finish(const int (&sum)[kReadings][4], int i) {
    if constexpr (kRule == HashRule::flat) return sum[0][i] >> 1;
    if constexpr (kRule == HashRule::bell) return (sum[0][i] + 3 * sum[1][i] + 4 * sum[2][i]) >> 3;
    if constexpr (kRule == HashRule::bits) return (3 * sum[0][i] + sum[1][i] + 28 * sum[2][i]) >> 4;
    if constexpr (kRule == HashRule::fine)
      return (3 * sum[0][i] + sum[1][i] + 16 * sum[2][i] + 12 * sum[kReadings - 1][i]) >> 4;
    return sum[0][i];
  }
};

// A lane's own words of a unit, and W of the lane before. If multipliers are multiples of 2^10,
// they can be divided by the excess left shift of a state, which saves most shifts (kStayLeft).
template <int kBits, bool kStayLeft>
struct LaneWords {
  static constexpr int kMostLeft = 10;
  static constexpr int kRest = kBits - 4;
  uint32_t w[4], h[kRest == 0 ? 1 : kRest], n[4];

  __device__ __forceinline__ void load(uint32_t shared, int lane) {
    const uint4 first = shared_words(shared + lane * 16);
    w[0] = first.x, w[1] = first.y, w[2] = first.z, w[3] = first.w;
    uint32_t at = shared + 512;
    if constexpr (kRest == 4) {
      const uint4 rest = shared_words(at + lane * 16);
      h[0] = rest.x, h[1] = rest.y, h[2] = rest.z, h[3] = rest.w;
    } else {
      if constexpr (kRest >= 2) {
        const float2 rest = shared_float2(at + lane * 8);
        h[0] = __float_as_uint(rest.x), h[1] = __float_as_uint(rest.y);
        at += 256;
      }
      if constexpr (kRest % 2 == 1) h[kRest - 1] = shared_word(at + lane * 4);
    }
  }

  __device__ __forceinline__ void exchange(int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      n[i] = __shfl_sync(~0u, w[i], (lane + 31) & 31);
  }

  // The four states of a tile, the oldest first: columns 0, 1 and 2, 3 of row g, then of g + 8;
  // s[i] still has to be shifted right by left(3 - i).
  template <int kTile>
  __device__ __forceinline__ void states(uint32_t (&s)[4]) const {
    constexpr int kHalf = kTile % 2;
    const uint32_t own = w[kTile / 2], before = n[kTile / 2];
    uint32_t low, high = 0;  // bits 0..31 and 16..47 of own bits and those before
    if constexpr (kBits == 4) {
      low = __byte_perm(own, before, kHalf ? 0x7632 : 0x5410);
    } else if constexpr (kBits == 6) {
      constexpr int kByte = kTile % 4;
      high = __byte_perm(h[kTile / 4], before, (kHalf ? 0x0760 : 0x0540) | kByte);
      low = __byte_perm(own, high, kHalf ? 0x5432 : 0x5410);
    } else if constexpr (kBits == 8) {
      high = __byte_perm(h[kTile / 2], before, kHalf ? 0x7632 : 0x5410);
      low = __byte_perm(own, high, kHalf ? 0x5432 : 0x5410);
    } else {
      constexpr int kWidth = 4 * kBits - 16, kBegin = kWidth * kTile, kWord = kBegin / 32;
      constexpr int kNext = kWord + 1 < kRest ? kWord + 1 : kWord;
      const uint32_t rest = __funnelshift_r(h[kWord], h[kNext], kBegin % 32) & ((1u << kWidth) - 1);
      high = (kHalf ? before >> 16 : before & 0xffffu) << kWidth | rest;
      low = __byte_perm(own, high, kHalf ? 0x5432 : 0x5410);
    }
    s[3] = field<0>(low);
    s[2] = field<1>(low);
    s[1] = field<2>(low);
    s[0] = field<3>(kBits <= 5 ? low : high);
  }

  // How many bits too far left step i from the last stays in states().
  static constexpr int left(int i) {
    const int begin = begin_of(i);
    return kStayLeft && begin <= kMostLeft ? begin : 0;
  }

 private:
  static constexpr int begin_of(int i) {
    return i == 3 && kBits > 5 ? 3 * kBits - 16 : i * kBits;
  }

  template <int kStep>
  static __device__ __forceinline__ uint32_t field(uint32_t word) {
    constexpr int kBegin = begin_of(kStep), kLeft = left(kStep);
    if constexpr (kLeft == 0 && kBegin == 16) return word >> 16;
    if constexpr (kLeft == 0 && kBegin == 8) return __byte_perm(word, 0, 0x4421);
    return word >> (kBegin - kLeft) & 0xffffu << kLeft;
  }
};

// Inputs in shared memory: [vector][unit][q][words of 8 tiles, padded], for two-byte rules and one
// vector every pair of columns twice.
template <HashRule kRule, int kVectors>
struct HashInputs {
  static constexpr bool kOneByte = is_one_byte(kRule);
  static constexpr bool kTwice = !kOneByte && kVectors == 1;
  static constexpr int kWords = kTwice ? 16 : 8, kStride = kWords + 4;

  static constexpr int bytes(int cols) {
    return kVectors * (cols / kHashUnitColumns) * 4 * kStride * 4;
  }

  static __device__ __forceinline__ void fill(uint32_t* shared, const HashProductArgs& args) {
    const int words = args.cols / 4;
    for (int i = threadIdx.x; i < kVectors * words; i += blockDim.x) {
      const int vector = i / words, quad = i % words, unit = quad / 32;
      const int tile = quad / 4 % 8, q = quad % 4;
      const uint32_t x = reinterpret_cast<const uint32_t*>(args.x)[i];
      uint32_t* to = shared + ((vector * (words / 32) + unit) * 4 + q) * kStride;
      if constexpr (kTwice) {
        to[2 * tile] = __byte_perm(x, 0, 0x1010);
        to[2 * tile + 1] = __byte_perm(x, 0, 0x3232);
      } else {
        to[tile] = x;
      }
    }
  }
};

// The levels of two states' values, looked up in shared memory.
__device__ __forceinline__ uint32_t table_levels(uint32_t table, uint32_t p, uint32_t q) {
  const auto look = [&](uint32_t index) {
    uint32_t level;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(level) : "r"(table + index));
    return level;
  };
  p &= 0x7f7f0000u;
  q &= 0x7f7f0000u;
  const uint32_t a = look(__byte_perm(p, 0, 0x4442)), b = look(p >> 24);
  const uint32_t c = look(__byte_perm(q, 0, 0x4442)), d = look(q >> 24);
  return __byte_perm(b * 256 + a, d * 256 + c, 0x5410);
}

// Adds a unit's tiles, from the lane's words and inputs, to the sums.
template <HashRule kRule, int kBits, int kVectors>
struct HashUnit {
  using Readings = HashReadings<kRule>;
  using Inputs = HashInputs<kRule, kVectors>;
  static constexpr int kReadings = Readings::kReadings;
  static constexpr int kTilesOf8 = kVectors == 16 ? 2 : 1;
  using Words = LaneWords<kBits, Inputs::kOneByte>;
  using Sums = int[kTilesOf8][kReadings][4];

  // `x`: shared address of the lane's inputs of this unit in the first n-tile; those of the second
  // are `step` bytes further.
  static __device__ __forceinline__ void multiply(Sums& sums, const Words& words, uint32_t x,
                                                  uint32_t step, uint32_t multiplier,
                                                  uint32_t second, uint32_t table) {
    four_tiles<0>(sums, words, x, step, multiplier, second, table);
    four_tiles<4>(sums, words, x, step, multiplier, second, table);
  }

 private:
  template <int kTile>
  static __device__ __forceinline__ void four_tiles(Sums& sums, const Words& words, uint32_t x,
                                                    uint32_t step, uint32_t multiplier,
                                                    uint32_t second, uint32_t table) {
    uint32_t b[kTilesOf8][Inputs::kTwice ? 8 : 4];
#pragma unroll
    for (int n = 0; n < kTilesOf8; ++n) {
#pragma unroll
      for (int i = 0; i < (Inputs::kTwice ? 2 : 1); ++i) {
        const uint4 v =
            shared_words(x + n * step + (Inputs::kTwice ? 2 * kTile : kTile) * 4 + 16 * i);
        b[n][4 * i] = v.x, b[n][4 * i + 1] = v.y, b[n][4 * i + 2] = v.z, b[n][4 * i + 3] = v.w;
      }
    }
    two_tiles<kTile, 0>(sums, words, b, multiplier, second, table);
    two_tiles<kTile, 2>(sums, words, b, multiplier, second, table);
  }

  template <int kFirst, int kTile, typename B>
  static __device__ __forceinline__ void two_tiles(Sums& sums, const Words& words, const B& b,
                                                   uint32_t multiplier, uint32_t second,
                                                   uint32_t table) {
    uint32_t s[2][4];
    words.template states<kFirst + kTile>(s[0]);
    words.template states<kFirst + kTile + 1>(s[1]);
    if constexpr (Inputs::kOneByte) {
      uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // rows g and g + 8 of one tile, then of the other
        const uint32_t(&of)[4] = s[i / 2];
        const int j = 2 * (i % 2);
        const uint32_t p = of[j] * (multiplier >> Words::left(3 - j));
        const uint32_t r = of[j + 1] * (multiplier >> Words::left(2 - j));
        a[i] = kRule == HashRule::table7 ? table_levels(table, p, r) : __byte_perm(p, r, 0x7632);
      }
#pragma unroll
      for (int n = 0; n < kTilesOf8; ++n)
        Readings::add(sums[n], a, b[n][kTile], b[n][kTile + 1]);
    } else {
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        products(sums, s[t], b, kTile + t, multiplier);
        if constexpr (kRule == HashRule::raw4) products(sums, s[t], b, kTile + t, second);
      }
    }
  }

  template <typename B>
  static __device__ __forceinline__ void products(Sums& sums, const uint32_t (&s)[4], const B& b,
                                                  int tile, uint32_t multiplier) {
    const uint32_t a[4] = {s[0] * multiplier, s[2] * multiplier, s[1] * multiplier,
                           s[3] * multiplier};
#pragma unroll
    for (int n = 0; n < kTilesOf8; ++n) {
      if constexpr (Inputs::kTwice) {
        Readings::add(sums[n], a, b[n][2 * tile], b[n][2 * tile + 1]);
      } else {
        Readings::add(sums[n], a, __byte_perm(b[n][tile], 0, 0x1010),
                      __byte_perm(b[n][tile], 0, 0x3232));
      }
    }
  }
};

// A warp's ring of units in shared memory, filled in order from its share of the weights.
template <int kUnitBytes, int kStages>
class UnitRing {
  static constexpr int kChunks = kUnitBytes / 16;

 public:
  __device__ UnitRing(uint32_t shared, const std::byte* source, int units, int lane)
      : first_(shared), read_(shared), write_(shared), left_(units), lane_(lane), source_(source) {
    source_ += lane * 16;
    for (int i = 0; i < kStages - 1; ++i)
      ask();
  }

  // The shared address of the next unit, which has arrived.
  __device__ __forceinline__ uint32_t next() {
    copy_wait<kStages - 2>();
    __syncwarp();
    const uint32_t at = read_;
    read_ = after(read_);
    return at;
  }

  // Starts loading the next unit, into the slot before that of the last next().
  __device__ __forceinline__ void ask() {
    if (left_ > 0) {
#pragma unroll
      for (int i = 0; i < (kChunks + 31) / 32; ++i) {
        if (i * 32 + 31 < kChunks || lane_ < kChunks - i * 32)
          copy_async(write_ + lane_ * 16 + i * 512, source_ + i * 512);
      }
    }
    copy_commit();
    --left_;
    source_ += kUnitBytes;
    write_ = after(write_);
  }

 private:
  __device__ __forceinline__ uint32_t after(uint32_t at) const {
    return at == first_ + (kStages - 1) * kUnitBytes ? first_ : at + kUnitBytes;
  }

  uint32_t first_, read_, write_;
  int left_, lane_;
  const std::byte* source_;
};

// y += W x. One block per multiprocessor; every warp takes an even share of the blocks of 16 rows x
// 256 columns (two units).
template <HashRule kRule, int kBits, int kVectors, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps * 32, 1) hash_product(const HashProductArgs args) {
  using Unit = HashUnit<kRule, kBits, kVectors>;
  using Inputs = HashInputs<kRule, kVectors>;
  constexpr int kBias = kRule == HashRule::table7 ? 0 : level_bias(kRule);
  constexpr int kUnitBytes = 128 * kBits, kRing = kStages * kUnitBytes;
  extern __shared__ uint4 memory[];
  __shared__ alignas(128) int8_t levels[128];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
  const int units = args.cols / kHashUnitColumns, blocks = units / 2;
  const int64_t total = int64_t{args.rows / 16} * blocks, warps = int64_t{gridDim.x} * kWarps;
  const int64_t number = int64_t{blockIdx.x} * kWarps + warp;
  const auto begin = static_cast<int>(total * number / warps);
  const auto end = static_cast<int>(total * (number + 1) / warps);
  UnitRing<kUnitBytes, kStages> ring(
      shared_address(memory) + warp * kRing,
      reinterpret_cast<const std::byte*>(args.weights) + int64_t{begin} * 2 * kUnitBytes,
      2 * (end - begin), lane);

  if (threadIdx.x < 128) levels[threadIdx.x] = args.table[threadIdx.x];
  const uint32_t table = shared_address(levels);
  auto* inputs = reinterpret_cast<uint32_t*>(memory) + kWarps * kRing / 4;
  Inputs::fill(inputs, args);
  auto* scales = reinterpret_cast<int2*>(inputs + Inputs::bytes(args.cols) / 4);
  for (int i = threadIdx.x; i < kVectors * blocks; i += blockDim.x)
    scales[i] = make_int2(__float_as_int(args.scales[i]), kBias * args.sums[i]);
  __syncthreads();

  constexpr int kUnitInputs = 4 * Inputs::kStride * 4;
  const uint32_t vector_bytes = units * kUnitInputs;
  const uint32_t x_begin =
      shared_address(inputs) + q * Inputs::kStride * 4 + (kVectors == 1 ? 0 : g * vector_bytes);
  float y[Unit::kTilesOf8][4] = {};
  int tile_row = begin / blocks, block = begin % blocks;
  uint32_t x = x_begin + block * 2 * kUnitInputs;
  const auto store = [&]() {
#pragma unroll
    for (int n = 0; n < Unit::kTilesOf8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int vector = kVectors == 1 ? 0 : 8 * n + 2 * q + i % 2;
        if (kVectors > 1 || (q == 0 && i % 2 == 0))
          atomicAdd(args.y + int64_t{vector} * args.rows + tile_row * 16 + g + i / 2 * 8, y[n][i]);
        y[n][i] = 0;
      }
    }
  };
  for (int left = end - begin; left > 0; --left) {
    typename Unit::Sums sums = {};
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      typename Unit::Words words;
      words.load(ring.next(), lane);
      ring.ask();
      words.exchange(lane);
      Unit::multiply(sums, words, x + u * kUnitInputs, 8 * vector_bytes, args.multiplier,
                     args.second, table);
    }
#pragma unroll
    for (int n = 0; n < Unit::kTilesOf8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (kVectors == 1 && i % 2 == 1) continue;
        const int vector = kVectors == 1 ? 0 : 8 * n + 2 * q + i % 2;
        const int2 scale = scales[vector * blocks + block];
        const int sum = HashReadings<kRule>::finish(sums[n], i) - scale.y;
        y[n][i] = fmaf(static_cast<float>(sum), __int_as_float(scale.x), y[n][i]);
      }
    }
    x += 2 * kUnitInputs;
    if (++block == blocks) {
      store();
      block = 0;
      x = x_begin;
      ++tile_row;
    }
  }
  if (block != 0) store();
}

}  // namespace walsh::cuda
