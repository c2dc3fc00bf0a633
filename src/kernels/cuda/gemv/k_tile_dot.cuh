// Multiplies 16 rows by 256 columns of weights in shared memory with a few vectors, which is the
// inner work of the product kernels, and combines the sums of a tile.
#pragma once

#include <cuda_fp16.h>

#include "codec/product/cuda/product_decoder.cuh"
#include "codec/scalar/cuda/code_decoder.cuh"
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemv/gemv_kernel.h"
#include "kernels/cuda/gemv/trellis_dot.cuh"

namespace walsh::cuda {

// Returns a / b for small numbers.
__device__ __forceinline__ int divide(int a, int b) {
  const int q = __float2int_rz(__fdividef(static_cast<float>(a), static_cast<float>(b)));
  const int rest = a - q * b;
  return rest < 0 ? q - 1 : rest >= b ? q + 1 : q;
}

// Returns the product that a tile of the launch belongs to.
template <typename Args>
__device__ __forceinline__ const TileSet& set_of(const Args& args, int tile) {
  int s = 0;
  if (tile >= args.set[1].first_tile) s = 1;
  if (tile >= args.set[2].first_tile) s = 2;
  return args.set[s];
}

// Describes the tiles of a round. Warp w takes an even share of their k-tiles, tile after tile, as
// one run; its part of a tile is piece number warp + tile.
struct TileRound {
  int first, tiles, k_tiles;  // `k_tiles` is the number per tile.
  int begin, end;             // They bound this warp's run.

  __device__ void share(int warp, int warps) {
    const int total = tiles * k_tiles;
    begin = total < warps ? min(warp, total) : total * warp / warps;
    end = total < warps ? min(warp + 1, total) : total * (warp + 1) / warps;
  }
};

// Holds the offsets of the parts of a k-tile in shared memory. In a ring for several codes they are
// those of the largest. With `Own`, the inputs in shared memory are for this code alone, so those
// of trellis codes can be stored doubled (gemv/trellis_dot.cuh). `Tokens` is the number of tokens,
// a power of two up to 8, if it is known when a kernel is compiled, otherwise 0.
template <int CodeVectors, int Flush, bool Own = false, int Tokens = 0>
struct KTilePlaces {
  static constexpr bool kOwn = Own;
  static constexpr int kTokens = Tokens;
  static constexpr int kScales = CodeVectors * 512;
  static constexpr int kOffsets = kScales + (Flush == 32 ? 256 : 64);
  static constexpr int kBytes = k_tile_bytes(CodeVectors, Flush);
};

// Multiplies Tiles8 tiles of 8 vectors, 0 for one vector. `Args` describes the product: GemvArgs,
// or a type with the members that are read here.
template <typename Decoder, int Flush, int Tiles8,
          typename Stage = KTilePlaces<Decoder::kVectors, Flush>>
struct KTileDot {
  // A lane has this many 16-byte vectors of a k-tile.
  static constexpr int kVectors = Decoder::kVectors;
  // All lanes have this many whole ones of these.
  static constexpr int kWhole = Decoder::kWords / 4;
  static constexpr int kStride = Decoder::kWords * 8;  // K-tiles are this many vectors apart.
  static constexpr int kScales = Stage::kScales;
  static constexpr int kOffsets = Stage::kOffsets;
  static constexpr int kNTiles = Tiles8 == 0 ? 1 : Tiles8;
  // An input scale has this many float2.
  static constexpr int kScaleColumns = Tiles8 == 0 ? 1 : 8 * Tiles8;
  // If it is 0, GemvArgs::m says it.
  static constexpr int kTokens = Tiles8 == 0 ? 1 : Stage::kTokens;
  static constexpr int kSumTokens = kTokens > 0 ? kTokens : Tiles8 == 1 ? 8 : 16;
  // A lane has this many scales per k-tile. Trellis codes have one per k-tile, or one per 32
  // columns.
  static constexpr int kScaleWords = Flush == 32 ? 8 : kIsTrellis<Decoder> ? 1 : 2;
  static constexpr bool kOwn = kIsTrellis<Decoder> && Stage::kOwn;
  static constexpr bool kDoubled = kOwn && Tiles8 == 0;
  // It is the size of a vector.
  static constexpr int kInputBytes = kDoubled ? 2 * kKTileColumns : kKTileColumns;
  // If true, levels are two products; with few vectors the tensor cores have time for both.
  static constexpr bool kSplit = Decoder::kSplit && Tiles8 == 0;

  // Returns the level table in the form that multiply() expects.
  static __device__ __forceinline__ LevelTable levels(const LevelTable& table) {
    return kSplit ? split_levels(table) : table;
  }

  // Says which vector of the scales and offsets of a k-tile a lane copies.
  struct Side {
    int place;  // It is an offset in the stage; < 0: nothing for this lane.
    int step;   // K-tiles are this many bytes apart.
    bool scale;

    __device__ Side(const GemvArgs& args, int lane) {
      scale = lane < args.scale_vectors;
      const bool offset = !scale && lane < args.scale_vectors + args.offset_vectors;
      place = scale    ? kScales + lane * 16
              : offset ? kOffsets + (lane - args.scale_vectors) * 16
                       : -1;
      step = scale ? args.scale_step : args.offset_step;
    }

    __device__ const std::byte* begin(const GemvArgs& args, const TileSet& set, int64_t tile,
                                      int64_t k_tile, int lane) const {
      return scale ? set.scales + tile * args.scale_tile + k_tile * args.scale_step + lane * 16
                   : set.offsets + tile * args.offset_tile + k_tile * args.offset_step +
                         (lane - args.scale_vectors) * 16;
    }
  };

  // Starts copying a k-tile: this lane's codes, and its part of the scales and offsets, if it has
  // one.
  static __device__ __forceinline__ void copy_k_tile(uint32_t codes_place, const uint4* codes,
                                                     bool has_side, uint32_t side_place,
                                                     const std::byte* side) {
#pragma unroll
    for (int v = 0; v < kWhole; ++v)
      copy_async(codes_place + v * 512, codes + v * 32);
    if (kWhole < kVectors && threadIdx.x % 32 < 16)
      copy_async(codes_place + kWhole * 512, codes + kWhole * 32);
    if (has_side) copy_async(side_place, side);
  }

  // Computes y += scale * x_scale * sums (+ offset * x_scale * sum of x) for one block with equal
  // scales. `x_scales` points to the lane's pair of vectors.
  template <typename Args>
  static __device__ __forceinline__ void flush(const Args& args, uint32_t scale_word,
                                               uint32_t offset_word, uint32_t x_scales, int block,
                                               const int (&sum)[kNTiles][4],
                                               float (&y)[kNTiles][4]) {
    const float2 scale = halves(scale_word);
    const float s0 = scale.x * args.unit, s1 = scale.y * args.unit;
    const int group = Flush == 128 ? block / 4 : block >> args.x_shift;
    // The offset applies to a whole group of inputs.
    const bool offsets =
        args.offset_vectors > 0 && (Flush == 128 || ((block + 1) & ((1 << args.x_shift) - 1)) == 0);
    const float2 offset = halves(offset_word);
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
      if constexpr (Tiles8 == 0) {  // All columns hold the same vector.
        const float2 x = shared_float2(x_scales + group * 8);
        y[n][0] = fmaf(static_cast<float>(sum[n][0]), s0 * x.x, y[n][0]);
        y[n][2] = fmaf(static_cast<float>(sum[n][2]), s1 * x.x, y[n][2]);
        if (offsets) {
          y[n][0] = fmaf(offset.x, x.y, y[n][0]);
          y[n][2] = fmaf(offset.y, x.y, y[n][2]);
        }
      } else {
        const float4 x = shared_float4(x_scales + group * kScaleColumns * 8 + n * 64);
        y[n][0] = fmaf(static_cast<float>(sum[n][0]), s0 * x.x, y[n][0]);
        y[n][1] = fmaf(static_cast<float>(sum[n][1]), s0 * x.z, y[n][1]);
        y[n][2] = fmaf(static_cast<float>(sum[n][2]), s1 * x.x, y[n][2]);
        y[n][3] = fmaf(static_cast<float>(sum[n][3]), s1 * x.z, y[n][3]);
        if (offsets) {
          y[n][0] = fmaf(offset.x, x.y, y[n][0]);
          y[n][1] = fmaf(offset.x, x.w, y[n][1]);
          y[n][2] = fmaf(offset.y, x.y, y[n][2]);
          y[n][3] = fmaf(offset.y, x.w, y[n][3]);
        }
      }
    }
  }

  // Computes sum += a b, or sum = a b for the first part.
  static __device__ __forceinline__ void add_product(int (&sum)[4], const uint32_t (&a)[4],
                                                     uint32_t b0, uint32_t b1, bool first) {
    const int zero[4] = {};
    if (first) {
      mma_int8(sum, a, b0, b1, zero);
    } else {
      mma_int8(sum, a, b0, b1, sum);
    }
  }

  // Subtracts only those sums that one vector uses.
  static __device__ __forceinline__ void subtract(int (&sum)[4], const int (&below)[4]) {
    sum[0] -= below[0];
    sum[2] -= below[2];
  }

  using Places = InputPlaces<kNTiles>;

  static __device__ Places places(int lane, int count) {
    const int g = lane / 4, t = lane % 4;
    const int vectors = Tiles8 == 0 ? 1 : count;
    Places p;
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
      const int vector = Tiles8 == 0 ? 0 : min(n * 8 + g, vectors - 1);
      p.b[n] = static_cast<uint32_t>(vector * 128 + t * 32 + (vector & 1) * 16);
      if constexpr (kDoubled) p.b[n] = static_cast<uint32_t>(t * 16);
    }
    p.chunk = static_cast<uint32_t>(vectors * 128);
    p.scales = static_cast<uint32_t>(vectors * kInputBytes + (Tiles8 == 0 ? 0 : t * 16));
    return p;
  }

  // Returns the offset of a lane's row scales in a stage, relative to its codes.
  static __device__ __forceinline__ uint32_t scales_from_codes(int lane) {
    return static_cast<uint32_t>(kScales + (lane / 4) * 4 - lane * 16);
  }

  // Multiplies the k-tile with this lane's codes at `codes`, scales at `side` and inputs at x.
  // Calls `refill` as soon as this lane has read them.
  template <typename Args, typename Refill>
  static __device__ __forceinline__ void multiply(const Args& args, const LevelTable& table,
                                                  int second_scale, uint32_t codes, uint32_t side,
                                                  uint32_t x, const Places& p,
                                                  float (&y)[kNTiles][4], const Refill& refill) {
    uint32_t words[kVectors * 4], scales[kScaleWords];
#pragma unroll
    for (int v = 0; v < kWhole; ++v) {
      const uint4 w = shared_words(codes + v * 512);
      words[4 * v] = w.x, words[4 * v + 1] = w.y, words[4 * v + 2] = w.z, words[4 * v + 3] = w.w;
    }
    if constexpr (kWhole < kVectors) {  // A lane has eight more bytes.
      const float2 w = shared_float2(codes + kWhole * 512 - threadIdx.x % 32 * 8);
      words[4 * kWhole] = __float_as_uint(w.x), words[4 * kWhole + 1] = __float_as_uint(w.y);
    }
#pragma unroll
    for (int s = 0; s < kScaleWords; ++s)
      scales[s] =
          shared_word(side + (Flush == 128 ? s * second_scale : (s >> args.scale_shift) * 32));
    if constexpr (kIsTrellis<Decoder>) {
      const bool first = threadIdx.x % 32 < 4;  // The previous lane is one of the last four.
      const uint4 w = shared_words(codes + (first ? 28u * 16 : 0u - 4 * 16));
      refill();
      const uint32_t before[4] = {w.x, w.y, w.z, w.w};
      multiply_trellis<TrellisDot<Decoder, Tiles8, kDoubled>>(args, words, before, scales,
                                                              table.words[0], x, p, y);
    } else {
      uint32_t offset = 0;
      if (args.offset_vectors > 0) offset = shared_word(side + (kOffsets - kScales));
      refill();
      multiply_codes(args, table, words, scales, offset, x, p, y);
    }
  }

 private:
  template <typename Args>
  static __device__ __forceinline__ void multiply_codes(const Args& args, const LevelTable& table,
                                                        const uint32_t (&words)[kVectors * 4],
                                                        const uint32_t (&scales)[kScaleWords],
                                                        uint32_t offset, uint32_t x,
                                                        const Places& p, float (&y)[kNTiles][4]) {
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
      const uint32_t* upper = words + chunk * 2 * kVectors;
      const uint32_t* lower = upper + kVectors;
      const uint32_t place = x + chunk * (Tiles8 == 0 ? 128 : p.chunk);
      int sum[kNTiles][4], below[4];  // `below` has sums with negated levels.
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t b[kNTiles][4];
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) {
          const uint32_t b_place = Tiles8 == 0 ? p.b[n] + half * 16 : p.b[n] ^ (half * 16);
          const uint4 w = shared_words(place + b_place);
          b[n][0] = w.x, b[n][1] = w.y, b[n][2] = w.z, b[n][3] = w.w;
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int i = half * 2 + j;
          const bool first = Flush == 32 || i == 0;
          uint32_t a[4];
          if constexpr (kSplit) {
            uint32_t c[4];
            Decoder::decode_split(upper[i], table, a[0], a[2], c[0], c[2]);
            Decoder::decode_split(lower[i], table, a[1], a[3], c[1], c[3]);
            add_product(below, c, b[0][2 * j], b[0][2 * j + 1], first);
          } else {
            Decoder::decode(upper, i, table, a[0], a[2]);
            Decoder::decode(lower, i, table, a[1], a[3]);
          }
#pragma unroll
          for (int n = 0; n < kNTiles; ++n) {
            add_product(sum[n], a, b[n][2 * j], b[n][2 * j + 1], first);
          }
          if constexpr (Flush == 32 && kSplit) subtract(sum[0], below);
          if constexpr (Flush == 32)
            flush(args, scales[chunk * 4 + i], offset, x + p.scales, chunk * 4 + i, sum, y);
        }
      }
      if constexpr (Flush == 128 && kSplit) subtract(sum[0], below);
      if constexpr (Flush == 128)
        flush(args, scales[chunk], offset, x + p.scales, chunk * 4, sum, y);
    }
  }

  // Returns the sum of a group of inputs from its product with their scale.
  static __device__ __forceinline__ int input_sum(float scale, float product) {
    return scale == 0.0f ? 0 : __float2int_rn(__fdividef(product, scale));
  }

  // Multiplies trellis codes as multiply() does others.
  template <typename Trellis, typename Args>
  static __device__ __forceinline__ void multiply_trellis(const Args& args,
                                                          const uint32_t (&words)[kVectors * 4],
                                                          const uint32_t (&before)[4],
                                                          const uint32_t (&scales)[kScaleWords],
                                                          uint32_t multiplier, uint32_t x,
                                                          const Places& p, float (&y)[kNTiles][4]) {
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
      typename Trellis::Sums sums[2];
#pragma unroll
      for (int q = 2 * chunk; q < 2 * chunk + 2; ++q) {
        const auto stream = Decoder::stream(words, before, q);
        if constexpr (Flush == 32) {
          sums[0] = sums[1] = {};
          Trellis::add_blocks(stream, multiplier, x, p, q, sums);
          flush_block(args, scales[2 * q], x + p.scales, 2 * q, sums[0], y);
          flush_block(args, scales[2 * q + 1], x + p.scales, 2 * q + 1, sums[1], y);
        } else {
          Trellis::add_group(stream, multiplier, x, p, q, sums[0]);
        }
      }
      if constexpr (Flush == 128)
        flush_chunk(halves(scales[0]), x + p.scales + chunk * kScaleColumns * 8, sums[0], y);
    }
  }

  template <typename Args, typename Sums>
  static __device__ __forceinline__ void flush_block(const Args& args, uint32_t scale_word,
                                                     uint32_t x_scales, int block, const Sums& sums,
                                                     float (&y)[kNTiles][4]) {
    int sum[kNTiles][4];
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sum[n][i] = sums.of(n, i, 0);
    }
    flush(args, scale_word, 0, x_scales, block, sum, y);
  }

  // Returns the correction of sums over a group of inputs, from the two members of its scale.
  static __device__ __forceinline__ int zero_of(float scale, float second) {
    return kOwn ? __float_as_int(second) : -kTrellisZero * input_sum(scale, second);
  }

  // Flushes trellis codes, which have no offsets and whose unit is multiplied at the end.
  template <typename Sums>
  static __device__ __forceinline__ void flush_chunk(float2 scale, uint32_t place, const Sums& sums,
                                                     float (&y)[kNTiles][4]) {
    const auto add = [&](int n, int i, float s, int zero) {
      y[n][i] = fmaf(static_cast<float>(sums.of(n, i, zero)), s, y[n][i]);
    };
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
      if constexpr (Tiles8 == 0) {
        const float2 v = shared_float2(place);
        const int zero = zero_of(v.x, v.y);
        add(n, 0, scale.x * v.x, zero);
        add(n, 2, scale.y * v.x, zero);
      } else {
        const float4 v = shared_float4(place + n * 64);
        const int even = zero_of(v.x, v.y), odd = zero_of(v.z, v.w);
        add(n, 0, scale.x * v.x, even);
        add(n, 1, scale.x * v.z, odd);
        add(n, 2, scale.y * v.x, even);
        add(n, 3, scale.y * v.z, odd);
      }
    }
  }

 public:
  // Stores the sums of a piece, i.e. of the k-tiles of one tile that one warp has:
  // [piece][token][row].
  static __device__ __forceinline__ void store_sums(float* sums, int piece, int planes, int lane,
                                                    const float (&y)[kNTiles][4]) {
    const int g = lane / 4, t = lane % 4;
    float* out = sums + piece * kSumTokens * kTileRows + g;
    if constexpr (Tiles8 == 0) {
      if (t == 0) {
        out[0] = y[0][0];
        out[8] = y[0][2];
      }
    } else {
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
        if (planes == 1) {
          if (Tiles8 > 2) continue;  // There are at most 16 tokens.
          if (n * 8 + 2 * t >= kSumTokens) continue;
          float* column = out + (n * 8 + 2 * t) * kTileRows;
          column[0] = y[n][0];
          column[kTileRows] = y[n][1];
          column[8] = y[n][2];
          column[kTileRows + 8] = y[n][3];
        } else {
          float* column = out + (n * 4 + t) * kTileRows;
          column[0] = y[n][0] + y[n][1];
          column[8] = y[n][2] + y[n][3];
        }
      }
    }
  }

  static __device__ __forceinline__ float row_factor_of(const TileSet& set, int64_t row) {
    const auto* factors = reinterpret_cast<const __half*>(set.row_factors);
    const int in_tile = static_cast<int>(row % kTileRows);
    return __half2float(factors[row - in_tile + in_tile % 8 * 2 + in_tile / 8]);
  }

  // Adds the sums of a round's tiles in the order of their columns, and writes them, multiplied by
  // `factor(token)`. 16 threads work on a tile and token. A thread asks for its first token's
  // factor and keeps it, so factors differ only where the number of tokens is known. Addresses are
  // computed before all warps have arrived. `publish` gets every address then, and returns a
  // function that gets the result. `args` has the products and their number of tokens, as GemvArgs
  // does.
  template <typename Args, typename Factor, typename Publish>
  static __device__ __forceinline__ void write_tiles(const Args& args, const float* sums,
                                                     const TileRound& r, int warps, int warp,
                                                     int lane, bool add_before,
                                                     const Factor& factor, const Publish& publish) {
    const int row = lane % kTileRows;
    const int tokens = kTokens > 0 ? kTokens : args.m;
    const int total = r.tiles * r.k_tiles, runs = min(warps, total), count = r.tiles * tokens;
    if (2 * warp >= count) {
      __syncthreads();
      return;
    }
    float times = 1;
    bool waiting = true;
#pragma unroll 1
    for (int base = 2 * warp; base < count; base += 2 * warps) {
      const int i = base + lane / kTileRows;
      const int tile = kTokens > 0 ? i / tokens : divide(i, tokens), token = i - tile * tokens;
      const int first = divide((tile * r.k_tiles + 1) * runs - 1, total);
      const int last = divide((tile + 1) * r.k_tiles * runs - 1, total);
      const float* in = sums + ((first + tile) * kSumTokens + token) * kTileRows + row;
      const TileSet& set = set_of(args, r.first + tile);
      const int64_t out_row = int64_t{r.first + tile - set.first_tile} * kTileRows + row;
      const bool inside = i < count && out_row < set.rows;
      const bool add = inside && (add_before || set.add);
      const bool has_bias = inside && !add_before && set.bias;
      float* y = set.y + token * set.ldy + out_row;
      const auto tell = publish(set, out_row, token);
      float before = 0, bias = 0, row_factor = set.row_unit;
      if (inside && set.row_factors) row_factor *= row_factor_of(set, out_row);
      if (add) before = *y;
      if (has_bias) bias = set.bias[out_row];
      if (waiting) {
        times = factor(token);
        __syncthreads();
      }
      waiting = false;
      if (!inside) continue;
      float sum = *in;
#pragma unroll 4
      for (int w = 1; w <= last - first; ++w)
        sum += in[w * kSumTokens * kTileRows];
      sum *= row_factor;
      sum *= times;
      if (has_bias) sum += bias;
      if (add) sum = before + sum;
      tell(sum);
      *y = sum;
    }
  }
};

}  // namespace walsh::cuda
