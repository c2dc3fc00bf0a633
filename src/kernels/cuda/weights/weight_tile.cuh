// Holds a tile of coded weights in registers, decoded and rotated back to the original basis. A
// warp has 16 rows by 256 columns in the order of weights/matrix.h, one row of every lane at a
// time.
//
// A lane (g = lane / 4, t = lane % 4) holds columns 128 c + 32 i + 8 t + r of rows g and g + 8 (c <
// 2, i < 4, r < 8). The inverse transform of a segment is H over its column index, whose bits are
// [c][i: 2][t: 2][r: 3]. The four bits t and r % 4 belong to 16 columns of four lanes; H16 over
// them is a product with a constant matrix of +-1, which a tensor core computes exactly as
// mma.m16n8k16 (both chunks of a row are two rows of its A). The bits r / 4, i and c are
// butterflies between registers, so no value is exchanged through memory. (HadaCore by Agarwal et
// al. 2024 does larger transforms on tensor cores; here the fragments come straight from the
// codes.)
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "codec/product/cuda/product_decoder.cuh"
#include "codec/scalar/cuda/code_decoder.cuh"
#include "codec/trellis/cuda/trellis_decoder.cuh"
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/weights/matrix.h"

namespace walsh::cuda::detail {

// Describes one pass of a coded matrix in the form that kernels take.
struct PassView {
  const uint4* codes = nullptr;      // Its shape is [tile][k-tile][vector][lane].
  const uint32_t* scales = nullptr;  // They are fp16 pairs [tile][group][g].
  // These are offsets in the same layout, or null. For trellis codes they are the factors of the
  // rows.
  const uint32_t* offsets = nullptr;
  int k_tiles = 0;                  // They have 256 columns.
  int groups = 0, group_shift = 0;  // The group of a column is column >> group_shift.
  int offset_groups = 0, offset_shift = 0;
  LevelTable level_low{}, level_high{};  // They are MatrixCode::low and high.
  float unit = 1;                        // It is MatrixCode::unit if levels are integers.
  const void* table = nullptr;           // It is Matrix::table.
  // It is the padded number of columns, which determines the rotation's segments.
  int cols = 0;
  int full_cols = 0;  // This many columns are in whole blocks.
  int block = 0;      // The rotation has blocks of this many columns; 0: there is none.
  uint32_t seed = 0;
  bool signs = false;
};

// Says how a rotation's segments divide a k-tile, by which butterflies join its blocks of 32.
struct KTileShape {
  uint32_t join64 = 0;   // Bit j says that blocks 2 j and 2 j + 1 are joined.
  uint32_t join128 = 0;  // Bit c says that the pairs of chunk c are joined.
  bool join256 = false;
  bool join512 = false, join1024 = false;  // Neighbouring k-tiles are joined.
  float norm = 0;                          // It is 1 / sqrt(segment size) if join256.

  __device__ float norm_of(int c, int i) const {
    if (join256) return norm;
    if (join128 >> c & 1u) return 0.08838834764831845f;  // It is 1 / sqrt(128).
    // These are for 64 and 32.
    return join64 >> (2 * c + i / 2) & 1u ? 0.125f : 0.17677669529663689f;
  }
};

// Returns the size of the segment that contains `column` (rotation_segments): blocks come first,
// then descending powers of two.
__device__ inline int segment_size(int column, const PassView& w) {
  int position = column - w.full_cols;
  if (position < 0) return w.block;
  int rest = w.cols - w.full_cols;
  for (int size = w.block / 2; size >= 32; size /= 2) {
    if (rest < size) continue;
    if (position < size) return size;
    position -= size;
    rest -= size;
  }
  return 32;
}

__device__ inline KTileShape k_tile_shape(int k_tile, const PassView& w) {
  KTileShape shape;
  const int first = k_tile * kKTileColumns;
  for (int j = 0; j < 4; ++j)
    shape.join64 |= (segment_size(first + 64 * j, w) >= 64 ? 1u : 0u) << j;
  for (int c = 0; c < 2; ++c)
    shape.join128 |= (segment_size(first + 128 * c, w) >= 128 ? 1u : 0u) << c;
  const int size = segment_size(first, w);
  shape.join256 = size >= 256;
  shape.join512 = size >= 512;
  shape.join1024 = size >= 1024;
  shape.norm = size >= 1024 ? 0.03125f : size >= 512 ? 0.04419417382415922f : 0.0625f;
  return shape;
}

__device__ inline uint32_t sign_bit(uint32_t seed, uint32_t column) {
  uint32_t h = column * 0x9E3779B9u + seed;  // This is fmix32, see rotation.h.
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return (h ^ (h >> 16)) >> 31;
}

// Computes the signs of 256 columns for all lanes of a warp: bit 16 j + 15 - p - 4 t of word 4 c +
// i belongs to column 128 c + 32 i + 8 t + 2 p + j, so that (word << 4 t + p) & 0x80008000 flips a
// lane's pair p.
__device__ inline void k_tile_signs(int k_tile, const PassView& w, int lane, uint32_t (&words)[8]) {
  const int q = 15 - lane % 16;
  const int column = 8 * (q / 4) + 2 * (q % 4) + lane / 16;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const uint32_t c = static_cast<uint32_t>(k_tile * kKTileColumns + 32 * k + column);
    words[k] = __ballot_sync(~0u, w.signs && sign_bit(w.seed, c) != 0);
  }
}

// Holds a warp's stage in shared memory: codes and scales of one tile's k-tile.
template <typename Decoder>
struct TileStage {
  uint4 codes[Decoder::kVectors][32];
  // These are fp16 pairs of rows g and g + 8, per 32 columns, or entries 0 and 4.
  uint32_t scales[8][8];
  uint32_t offsets[2][8];  // They are per 128 columns.
};

// Starts the copies of a stage. The caller commits once per call.
template <typename Decoder>
__device__ inline void load_stage(TileStage<Decoder>& stage, const PassView& w, int tile,
                                  int k_tile, int lane) {
  const uint4* from =
      w.codes + (static_cast<int64_t>(tile) * w.k_tiles + k_tile) * (Decoder::kWords * 8) + lane;
#pragma unroll
  for (int v = 0; v < Decoder::kVectors; ++v)
    if (v < Decoder::kWords / 4 || lane < 16)
      copy_async(shared_address(&stage.codes[v][lane]), from + v * 32);
  const bool fine = w.group_shift < 7;
  const int entry = fine ? lane / 2 : lane / 2 * 4, half = lane % 2 * 4;
  if (entry < 8) {
    const int group = (k_tile * kKTileColumns + 32 * entry) >> w.group_shift;
    copy_async(shared_address(&stage.scales[entry][half]),
               w.scales + (static_cast<int64_t>(tile) * w.groups + group) * 8 + half);
  } else if (w.offsets != nullptr && lane >= 28) {
    const int c = lane / 2 % 2;
    const int group = (k_tile * kKTileColumns + 128 * c) >> w.offset_shift;
    copy_async(shared_address(&stage.offsets[c][half]),
               w.offsets + (static_cast<int64_t>(tile) * w.offset_groups + group) * 8 + half);
  }
}

// Computes f16 pairs of a row's levels (decode_levels), from a lane's words [c][half][kVectors] of
// codes whose rows are packed separately.
template <typename Decoder>
__device__ inline void decode_rows(const PassView& w,
                                   const uint32_t (&words)[4 * Decoder::kVectors], int half,
                                   uint32_t (&levels)[2][4][4]) {
  constexpr int kWords = Decoder::kVectors;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    // It is selected instead of indexed, because `half` is a loop variable.
    uint32_t row[kWords];
#pragma unroll
    for (int k = 0; k < kWords; ++k)
      row[k] = half ? words[(2 * c + 1) * kWords + k] : words[2 * c * kWords + k];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      Decoder::decode_f16(row, i, w.level_low, w.level_high, levels[c][i]);
  }
}

template <typename Decoder>
__device__ inline void load_words(const TileStage<Decoder>& stage, int lane,
                                  uint32_t (&words)[4 * Decoder::kVectors]) {
  constexpr int kWhole = Decoder::kWords / 4;
#pragma unroll
  for (int v = 0; v < kWhole; ++v) {
    const uint4 x = stage.codes[v][lane];
    words[4 * v] = x.x, words[4 * v + 1] = x.y, words[4 * v + 2] = x.z, words[4 * v + 3] = x.w;
  }
  if constexpr (kWhole < Decoder::kVectors) {
    const uint2 x = reinterpret_cast<const uint2*>(stage.codes[kWhole])[lane];
    words[4 * kWhole] = x.x, words[4 * kWhole + 1] = x.y;
  }
}

// Computes f16 pairs of trellis codes, where lanes have other columns (trellis_layout.h): the
// columns of block i belong to two tiles, which two lanes of each four have.
template <typename Decoder>
__device__ inline void decode_steps(const PassView& w, const TileStage<Decoder>& stage, int lane,
                                    int half, uint32_t (&levels)[2][4][4]) {
#pragma unroll
  for (int odd = 0; odd < 2; ++odd) {
    const int from = lane / 4 * 4 + 2 * odd + lane % 4 / 2;
    uint32_t words[4 * Decoder::kVectors];
    load_words(stage, from, words);
    const uint4 last = stage.codes[0][trellis_lane_before(from)];
    const uint32_t before[4] = {last.x, last.y, last.z, last.w};
#pragma unroll
    for (int q = 0; q < kTrellisGroups; ++q) {
      uint32_t low, high;
      Decoder::decode_bytes(Decoder::stream(words, before, q), lane % 2, half, w.level_low.words[0],
                            low, high);
      bytes_to_f16(low, high, levels[q / 2][q % 2 * 2 + odd]);
    }
  }
}

// Computes f16 pairs of a row's levels. Pair [c][i][p] has columns r = 2 p and 2 p + 1.
template <typename Decoder>
__device__ inline void decode_levels(const PassView& w, const TileStage<Decoder>& stage, int lane,
                                     int half, uint32_t (&levels)[2][4][4]) {
  if constexpr (kIsTrellis<Decoder>) {
    decode_steps(w, stage, lane, half, levels);
  } else {
    uint32_t words[4 * Decoder::kVectors];
    load_words(stage, lane, words);
    decode_rows<Decoder>(w, words, half, levels);
  }
}

// Returns the fp16 value of row g + 8 half among eight pairs.
__device__ inline float half_of(const uint32_t (&pairs)[8], int lane, int half) {
  return __half2float(reinterpret_cast<const __half*>(pairs)[lane / 4 * 2 + half]);
}

template <typename Decoder>
__device__ inline float scale_of(const TileStage<Decoder>& stage, const PassView& w, int c, int i,
                                 int lane, int half) {
  float scale = half_of(stage.scales[w.group_shift < 7 ? 4 * c + i : 4 * c], lane, half);
  if constexpr (kIsTrellis<Decoder>) scale *= half_of(stage.offsets[c], lane, half);
  return Decoder::kUnitLevels ? scale * w.unit : scale;
}

template <typename Decoder>
__device__ inline float offset_of(const TileStage<Decoder>& stage, const PassView& w, int c,
                                  int lane, int half) {
  return !kIsTrellis<Decoder> && w.offsets != nullptr ? half_of(stage.offsets[c], lane, half)
                                                      : 0.0f;
}

// Returns this lane's part of operand B of the H16 product, which is pairs of +-1.
__device__ inline uint32_t hadamard_fragment(int lane) {
  const int g = lane / 4, t = lane % 4;
  const uint32_t odd = __popc(t & (g >> 1)) & 1;
  const uint32_t one = 0x3C00u;
  return (one | odd << 15) | (one | (odd ^ (g & 1)) << 15) << 16;
}

__device__ inline void mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                               uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
}

__device__ inline void butterfly(float& a, float& b) {
  const float u = a + b, v = a - b;
  a = u, b = v;
}

// Computes value[c][i][r] = (scale * level + offset) rotated back, without signs. For segments
// above 256 columns the caller must join the k-tiles afterwards.
template <typename Decoder>
__device__ inline void rotate_back(const uint32_t (&levels)[2][4][4],
                                   const TileStage<Decoder>& stage, const PassView& w, int half,
                                   const KTileShape& shape, int lane, float (&value)[2][4][8]) {
  const uint32_t b = hadamard_fragment(lane), flipped = b ^ 0x80008000u;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      float d[2][4];
#pragma unroll
      for (int h = 0; h < 2; ++h)
        mma_f16(d[h], levels[0][i][2 * s], levels[1][i][2 * s], levels[0][i][2 * s + 1],
                levels[1][i][2 * s + 1], b, h ? flipped : b);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
#pragma unroll
        for (int r = 0; r < 4; ++r)
          value[c][i][4 * s + r] = d[r / 2][2 * c + r % 2];
      }
    }
  }
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    // A constant over 16 columns is 16 times the constant in the first coefficient.
    const float constant = lane % 4 == 0 ? 16.0f * offset_of(stage, w, c, lane, half) : 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float norm = shape.norm_of(c, i);
      const float scale = scale_of(stage, w, c, i, lane, half) * norm, first = constant * norm;
#pragma unroll
      for (int r = 0; r < 8; ++r)
        value[c][i][r] = __fmaf_rn(value[c][i][r], scale, r % 4 == 0 ? first : 0.0f);
#pragma unroll
      for (int r = 0; r < 4; ++r)
        butterfly(value[c][i][r], value[c][i][r + 4]);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (shape.join64 >> (2 * c + j) & 1u) {
#pragma unroll
        for (int r = 0; r < 8; ++r)
          butterfly(value[c][2 * j][r], value[c][2 * j + 1][r]);
      }
    }
    if (shape.join128 >> c & 1u) {
#pragma unroll
      for (int r = 0; r < 16; ++r)
        butterfly(value[c][r / 8][r % 8], value[c][r / 8 + 2][r % 8]);
    }
  }
  if (shape.join256) {
#pragma unroll
    for (int r = 0; r < 32; ++r)
      butterfly(value[0][r / 8][r % 8], value[1][r / 8][r % 8]);
  }
}

// Computes values without a rotation: scale * level + offset.
template <typename Decoder>
__device__ inline void plain_values(const uint32_t (&levels)[2][4][4],
                                    const TileStage<Decoder>& stage, const PassView& w, int half,
                                    int lane, float (&value)[2][4][8]) {
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const float offset = offset_of(stage, w, c, lane, half);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float scale = scale_of(stage, w, c, i, lane, half);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const float2 level = __half22float2(*reinterpret_cast<const __half2*>(&levels[c][i][p]));
        value[c][i][2 * p] = __fmaf_rn(level.x, scale, offset);
        value[c][i][2 * p + 1] = __fmaf_rn(level.y, scale, offset);
      }
    }
  }
}

}  // namespace walsh::cuda::detail
