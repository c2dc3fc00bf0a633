// Multiplies a stage of the tile kernel with a warp. Codes become int8 fragments, which serve all
// vectors, and sums over a chunk of 128 columns are scaled and added up in float32.
#pragma once

#include <cuda_fp16.h>

#include "codec/product/cuda/product_decoder.cuh"
#include "codec/scalar/cuda/code_decoder.cuh"
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemm/int8_tile.h"

namespace walsh::cuda::detail {

inline constexpr int kMagic = 0x4B400000;          // It is the bit pattern of 1.5 * 2^23.
inline constexpr float kMagicValue = 12582912.0f;  // It is the same number as a float.

// Computes the results of a warp's two tiles and 8 NT vectors, without the factor TileInput::unit.
template <typename Decoder, bool Fine, int NT, typename Stage>
struct TileProducts {
  static constexpr int kVectors = Decoder::kVectors;

  // This many blocks of 8 vectors are multiplied without a branch in between, so that the products
  // of two of them, the scaling of the previous ones and the loads of the next ones overlap. An
  // item that ends within a run also multiplies whatever is in shared memory behind it; those
  // results are not stored.
  static constexpr int kRun = 4;
  static_assert(kRun % 2 == 0 && NT % kRun == 0);

  using Results = float[2][NT][4];
  using Fragments = uint32_t[2][4][4];  // They are weights of both tiles.
  using Inputs = uint32_t[2][8];        // They are those of two blocks of 8 vectors.
  using Sums = int[2][2][4];            // They are those of two blocks of vectors with both tiles.

  static __device__ __forceinline__ float scale_of(uint32_t pair, int half) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(half ? pair >> 16 : pair)));
  }

  static __device__ void decode(const Stage& stage, const LevelTable& table, int tile, int c,
                                int lane, uint32_t (&a)[4][4]) {
    // A row of a chunk has kVectors words. Those of chunk c are in these vectors.
    constexpr int kFirst[2] = {0, 2 * kVectors / 4};
    constexpr int kCount = (2 * kVectors + 3) / 4;
    uint32_t words[4 * kCount];
#pragma unroll
    for (int v = 0; v < kCount; ++v) {
      const uint4 x = stage.codes[tile][kFirst[c] + v][lane];
      words[4 * v] = x.x, words[4 * v + 1] = x.y, words[4 * v + 2] = x.z, words[4 * v + 3] = x.w;
    }
    const int skip = c == 1 ? 2 * kVectors % 4 : 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Decoder::decode(words + skip, i, table, a[i][0], a[i][2]);
      Decoder::decode(words + skip + kVectors, i, table, a[i][1], a[i][3]);
    }
  }

  // Stores rows from `first_row` on, for those vectors from `first_token` on that are before m.
  static __device__ void store(const TileInput& p, int first_row, int first_token, int m, int lane,
                               const Results& y) {
#pragma unroll
    for (int mt = 0; mt < 2; ++mt) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = first_row + 16 * mt + lane / 4 + 8 * (e / 2);
        if (row >= p.rows) continue;
        const float bias = p.bias != nullptr ? p.bias[row] : 0.0f;
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          const int token = first_token + 8 * n + 2 * (lane % 4) + e % 2;
          if (token >= m) continue;
          float* out = p.y + token * p.ldy + row;
          *out = __fmaf_rn(y[mt][n][e], p.unit, p.add ? *out + bias : bias);
        }
      }
    }
  }

  // Holds the offsets of rows g and g + 8 of both tiles, one per k-tile.
  struct OffsetPairs {
    float value[2][2];
  };

  static __device__ __forceinline__ OffsetPairs load_offsets(const Stage& stage, const TileInput& p,
                                                             int tile, int g) {
    OffsetPairs offset;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float value = scale_of(stage.offsets[tile + k / 2][g], k % 2);
      offset.value[k / 2][k % 2] = value * p.inverse_unit;
    }
    return offset;
  }

  static __device__ __forceinline__ void add_offsets(const OffsetPairs& offset,
                                                     const float (&total)[2], int n, Results& y) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      float& v = y[k / 4][n][k % 4];
      v = __fmaf_rn(offset.value[k / 4][k % 4 / 2], total[k % 2], v);
    }
  }

  // Adds offset * sum of the inputs over a k-tile, from the stored sums over 128 columns.
  static __device__ __forceinline__ void add_k_tile_offsets(const Stage& stage, const TileInput& p,
                                                            int tile, int lane, int used,
                                                            Results& y) {
    const OffsetPairs offset = load_offsets(stage, p, tile, lane / 4);
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      if (n >= used) break;
      const int token = 8 * n + 2 * (lane % 4);
      float total[2] = {};
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float* xs = &stage.x_scales[c][token];
        total[0] = __fmaf_rn(static_cast<float>(stage.sums[c][token]), xs[0], total[0]);
        total[1] = __fmaf_rn(static_cast<float>(stage.sums[c][token + 1]), xs[1], total[1]);
      }
      add_offsets(offset, total, n, y);
    }
  }
  static constexpr int kScales = Fine ? 4 : 1;  // A row has this many scales per chunk.
  using Scales = float[2][kScales][2];          // They are those of a lane's rows in both tiles.

  template <int C>
  static __device__ __forceinline__ void load_inputs(const Stage& stage, int n, int g, int t,
                                                     Inputs& b) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint4 units = stage.q[8 * (n + k / 2) + g][(8 * C + 2 * t + k % 2) ^ (g & 1)];
      uint32_t* to = b[k / 2] + 4 * (k % 2);
      to[0] = units.x, to[1] = units.y, to[2] = units.z, to[3] = units.w;
    }
  }

  // Returns the scales of the two columns of a lane in block n of the vectors.
  static __device__ __forceinline__ float2 input_scales(const Stage& stage, int step, int n,
                                                        int t) {
    return *reinterpret_cast<const float2*>(&stage.x_scales[step][8 * n + 2 * t]);
  }

  // Multiplies in four chains that do not depend on each other.
  static __device__ __forceinline__ void multiply_coarse(const Fragments& a, const Inputs& b,
                                                         Sums& sum) {
    const int start[4] = {kMagic, kMagic, kMagic, kMagic};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        int(&d)[4] = sum[k / 2][k % 2];
        if (i == 0) {
          mma_int8(d, a[k % 2][i], b[k / 2][2 * i], b[k / 2][2 * i + 1], start);
        } else {
          mma_int8(d, a[k % 2][i], b[k / 2][2 * i], b[k / 2][2 * i + 1], d);
        }
      }
    }
  }

  // Computes y += sum * scale of the row * scale of the vector. A scale has 11 bits, so its product
  // with kMagicValue is exact, and the first step rounds only the product with the sum.
  template <int C>
  static __device__ __forceinline__ void add_coarse(const Stage& stage, const Sums& sum,
                                                    const Scales& scale, int n, int t, Results& y) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 xs = input_scales(stage, C, n + k / 2, t);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float of_row = scale[k % 2][0][e / 2];
        const float product = __fmaf_rn(__int_as_float(sum[k / 2][k % 2][e]), of_row,
                                        __fmul_rn(of_row, -kMagicValue));
        float& to = y[k % 2][n + k / 2][e];
        to = __fmaf_rn(product, e % 2 ? xs.y : xs.x, to);
      }
    }
  }

  // Multiplies both tiles by kRun blocks of vectors from `first` on, with one scale per chunk.
  template <int C>
  static __device__ __forceinline__ void run_coarse(const Stage& stage, const Fragments& a,
                                                    const Scales& scale, int first, int g, int t,
                                                    Results& y) {
    Inputs b[2];
    Sums sum[2];
    load_inputs<C>(stage, first, g, t, b[0]);
#pragma unroll
    for (int n = 0; n < kRun; n += 2) {
      const int now = n / 2 % 2;
      multiply_coarse(a, b[now], sum[now]);
      if (n + 2 < kRun) load_inputs<C>(stage, first + n + 2, g, t, b[1 - now]);
      if (n > 0) add_coarse<C>(stage, sum[1 - now], scale, first + n - 2, t, y);
    }
    add_coarse<C>(stage, sum[(kRun / 2 - 1) % 2], scale, first + kRun - 2, t, y);
  }

  // Multiplies in the same way with one scale per 32 columns. If there are offsets, the sums of the
  // inputs over 32 columns are computed as well, by a product with ones, every row of which is such
  // a sum.
  template <int C>
  static __device__ __forceinline__ void run_fine(const Stage& stage, bool offsets,
                                                  const Fragments& a, const Scales& scale,
                                                  const OffsetPairs& offset, int first, int g,
                                                  int t, Results& y) {
    const int start[4] = {kMagic, kMagic, kMagic, kMagic};
    constexpr uint32_t kOnes[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
#pragma unroll
    for (int n = first; n < first + kRun; n += 2) {
      Inputs b;
      load_inputs<C>(stage, n, g, t, b);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const float2 xs = input_scales(stage, 4 * C + i, n + k, t);
          int sum[2][4];
#pragma unroll
          for (int mt = 0; mt < 2; ++mt) {
            mma_int8(sum[mt], a[mt][i], b[k][2 * i], b[k][2 * i + 1], start);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              float& to = y[mt][n + k][e];
              to = __fmaf_rn(__int_as_float(sum[mt][e]) - kMagicValue,
                             scale[mt][i][e / 2] * (e % 2 ? xs.y : xs.x), to);
            }
          }
          if (!offsets) continue;
          mma_int8(sum[0], kOnes, b[k][2 * i], b[k][2 * i + 1], start);
          const float total[2] = {(__int_as_float(sum[0][0]) - kMagicValue) * xs.x,
                                  (__int_as_float(sum[0][1]) - kMagicValue) * xs.y};
          add_offsets(offset, total, n + k, y);
        }
      }
    }
  }

  // Multiplies a chunk of 128 columns by the first `used` blocks of 8 vectors.
  template <int C>
  static __device__ __forceinline__ void multiply_chunk(const Stage& stage, const TileInput& p,
                                                        int tile, int lane, int used, Results& y) {
    const int g = lane / 4, t = lane % 4;
    const LevelTable table = p.levels;
    Fragments a;
    Scales scale;
#pragma unroll
    for (int mt = 0; mt < 2; ++mt) {
      decode(stage, table, tile + mt, C, lane, a[mt]);
#pragma unroll
      for (int s = 0; s < kScales; ++s) {
        const uint32_t pair = stage.scales[tile + mt][C * kScales + s][g];
        scale[mt][s][0] = scale_of(pair, 0);
        scale[mt][s][1] = scale_of(pair, 1);
      }
    }
    const OffsetPairs offset = Fine ? load_offsets(stage, p, tile, g) : OffsetPairs();
#pragma unroll
    for (int first = 0; first < NT; first += kRun) {
      if (first >= used) break;
      if constexpr (Fine) {
        run_fine<C>(stage, p.offsets != nullptr, a, scale, offset, first, g, t, y);
      } else {
        run_coarse<C>(stage, a, scale, first, g, t, y);
      }
    }
  }

  // Multiplies one k-tile.
  static __device__ __forceinline__ void multiply(const Stage& stage, const TileInput& p, int tile,
                                                  int lane, int used, Results& y) {
    multiply_chunk<0>(stage, p, tile, lane, used, y);
    multiply_chunk<1>(stage, p, tile, lane, used, y);
    if constexpr (!Fine) {
      if (p.offsets != nullptr) add_k_tile_offsets(stage, p, tile, lane, used, y);
    }
  }
};

}  // namespace walsh::cuda::detail
