// Prepares many rows of an input. A warp keeps one k-tile, computes its gains, signs and segments
// once, and walks over rows, prefetching the next one. With a norm, all warps of a row are in one
// block, and the squares of a k-tile are summed once. The bits are those of prepare_row().
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/rows/row_transform.cuh"

namespace walsh::cuda {

// Names the step before the rotation.
enum class RowSteps { none, norm, gate };

inline constexpr int kManyWarps = 8;  // A block has about this many warps.
// Registers allow this many warps per multiprocessor.
inline constexpr int kResidentWarps = 32;
inline constexpr int64_t kMostRows = 1 << 24;
// The code for Hadamard blocks of at least this size is the shortest.
inline constexpr int kUsualBlock = 128;
inline constexpr int kMostNormTiles = 32;  // A row with a norm has at most this many k-tiles.

// Describes the launch that makes one form of many rows.
struct ManyRows {
  int m = 0;
  int tiles = 0;              // A row has this many k-tiles.
  int warps = 0, blocks = 0;  // `warps` is per block; with a norm they cover whole rows.
};

// Returns the launch. blocks == 0 means that prepare_row() is to be used, because the rows do not
// fill half the device, are too wide, cannot be read and stored 16 bytes at a time, or have
// Hadamard blocks larger than a k-tile.
inline ManyRows many_rows(const InputView& in, const FormView& form, int64_t m,
                          int multiprocessors) {
  const bool norm = in.gain != nullptr;
  ManyRows shape;
  shape.m = static_cast<int>(m);
  shape.tiles = form.cols / kKTileColumns;
  const int64_t resident = int64_t{multiprocessors} * kResidentWarps;
  const int bytes = form.row_type == DType::f32 ? 4 : 2;
  const bool stored =
      form.rows == nullptr || (form.padded % kLaneColumns == 0 && form.stride * bytes % 16 == 0 &&
                               reinterpret_cast<uintptr_t>(form.rows) % 16 == 0);
  if (m > kMostRows || !in.vectors || !stored || form.block > kKTileColumns ||
      2 * m * shape.tiles < resident || shape.tiles > resident ||
      (norm && shape.tiles > kMostNormTiles)) {
    return shape;
  }
  const int rows = shape.tiles < kManyWarps ? kManyWarps / shape.tiles : 1;
  shape.warps = norm ? rows * shape.tiles : kManyWarps;
  const int per_processor = shape.warps < kResidentWarps ? kResidentWarps / shape.warps : 1;
  const int64_t all = (m * shape.tiles + shape.warps - 1) / shape.warps;
  const int64_t most = int64_t{multiprocessors} * per_processor;
  shape.blocks = static_cast<int>(all < most ? all : most);
  return shape;
}

// Holds a lane's columns as loaded from memory. They are not converted, so that nothing waits for
// the loads before they are needed.
template <typename Element>
struct RawLane {
  uint32_t words[kLaneColumns / 2] = {};
};
template <>
struct RawLane<float> {
  float v[kLaneColumns] = {};
};

// Loads columns from `column` on of a row that starts at x + at (this requires InputView::vectors),
// and zeros beyond the row.
template <typename Element>
__device__ __forceinline__ void load_raw(const void* x, int64_t at, int column, const InputView& in,
                                         RawLane<Element>& lane) {
  if constexpr (std::is_same_v<Element, float>) {
    load8_whole(static_cast<const float*>(x) + at, column, in, lane.v);
  } else {
    uint4 four = make_uint4(0, 0, 0, 0);
    if (column < in.width)
      four = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(x) + at + column);
    lane.words[0] = four.x, lane.words[1] = four.y, lane.words[2] = four.z, lane.words[3] = four.w;
  }
}

template <typename Element>
__device__ __forceinline__ void values_of(const RawLane<Element>& lane, float (&v)[kLaneColumns]) {
#pragma unroll
  for (int e = 0; e < kLaneColumns; e += 2) {
    if constexpr (std::is_same_v<Element, float>) {
      v[e] = lane.v[e], v[e + 1] = lane.v[e + 1];
    } else if constexpr (std::is_same_v<Element, __half>) {
      const float2 pair = halves(lane.words[e / 2]);
      v[e] = pair.x, v[e + 1] = pair.y;
    } else {
      v[e] = __uint_as_float(lane.words[e / 2] << 16);
      v[e + 1] = __uint_as_float(lane.words[e / 2] & 0xffff0000u);
    }
  }
}

// Returns 1 / rms of the row whose k-tiles are with the warps from `first` on. `turn` alternates
// between 0 and 1, because sums of one row may still be read while those of the next are written.
__device__ __forceinline__ float rms_of_warps(const InputView& in, const float (&v)[kLaneColumns],
                                              int tiles, int warp, int first, int lane, int turn) {
  __shared__ double squares[2][kMostNormTiles];
  const double sum = k_tile_squares(v);
  if (lane == 0) squares[turn][warp] = sum;
  __syncthreads();
  const int share = lane % kShares;
  double total = share < tiles ? squares[turn][first + share] : 0.0;
  if (share + kShares < tiles) total += squares[turn][first + share + kShares];
  return inverse_rms(in, total);
}

// Packs two 16-bit values into a word.
template <typename Half>
__device__ __forceinline__ uint32_t word_of(Half low, Half high) {
  const Half both[2] = {low, high};
  uint32_t word;
  memcpy(&word, both, sizeof word);
  return word;
}

// Stores a lane's columns of float rows. For 32-bit floats, lanes of a pair exchange halves, so
// that each writes 32 bytes at once.
__device__ __forceinline__ void store_whole(const FormView& form, int64_t t, int column, int lane,
                                            const float (&v)[kLaneColumns]) {
  const int64_t row = t * form.stride;
  if (form.row_type == DType::f32) {
    const bool odd = lane % 2 != 0;
    float other[4];
#pragma unroll
    for (int e = 0; e < 4; ++e)
      other[e] = __shfl_xor_sync(~0u, odd ? v[e] : v[e + 4], 1);
    const int pair = odd ? column - kLaneColumns : column;
    float* to = static_cast<float*>(form.rows) + row + pair + (odd ? 4 : 0);
    const float4 own =
        odd ? make_float4(v[4], v[5], v[6], v[7]) : make_float4(v[0], v[1], v[2], v[3]);
    const float4 got = make_float4(other[0], other[1], other[2], other[3]);
    if (pair < form.padded) *reinterpret_cast<float4*>(to) = odd ? got : own;
    if (pair + kLaneColumns < form.padded)
      *reinterpret_cast<float4*>(to + kLaneColumns) = odd ? own : got;
    return;
  }
  if (column >= form.padded) return;
  uint32_t w[kLaneColumns / 2];
#pragma unroll
  for (int e = 0; e < kLaneColumns; e += 2) {
    w[e / 2] = form.row_type == DType::f16
                   ? word_of(__float2half_rn(v[e]), __float2half_rn(v[e + 1]))
                   : word_of(__float2bfloat16_rn(v[e]), __float2bfloat16_rn(v[e + 1]));
  }
  *reinterpret_cast<uint4*>(static_cast<uint16_t*>(form.rows) + row + column) =
      make_uint4(w[0], w[1], w[2], w[3]);
}

// Makes all rows of one form with the blocks of ManyRows. Waits for the preceding kernel.
template <typename Element, RowSteps Steps>
__device__ __forceinline__ void prepare_many(const InputView& in, const FormView& form,
                                             const ManyRows& shape) {
  constexpr bool kNorm = Steps == RowSteps::norm, kGate = Steps == RowSteps::gate;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int unit = static_cast<int>(blockIdx.x) * shape.warps + warp;
  // A warp advances by this many rows.
  const int step = static_cast<int>(gridDim.x) * shape.warps / shape.tiles;
  const int k_tile = unit % shape.tiles;
  int t = unit / shape.tiles;
  const int column = k_tile * kKTileColumns + lane * kLaneColumns;
  // This loads what does not depend on the preceding kernel before it waits for that.
  float gain[kLaneColumns];
  if (kNorm) load8_whole(in.gain, column, in, gain);
  const uint32_t signs = sign_bits(form, column);
  const bool whole = (k_tile + 1) * kKTileColumns <= form.full;
  const int size = !form.block ? 0 : whole ? form.block : segment_size(form, column);
  wait_previous_kernel();
  if (t >= step) return;  // This warp is not needed, which can happen only without a norm.
  RawLane<Element> next;
  RawLane<float> next_up;
  const auto fetch = [&](int row) {
    const int from = row < shape.m ? column : in.width;
    load_raw<Element>(in.x, row * in.ldx, from, in, next);
    if (kGate) load_raw<float>(in.up, row * in.ldx, from, in, next_up);
  };
  fetch(t);
  // With a norm all warps of a block must iterate equally often, until the first of its rows is
  // past the end.
  const int behind = kNorm ? warp / shape.tiles : 0;
  for (int turn = 0; t - behind < shape.m; t += step, turn ^= 1) {
    float v[kLaneColumns], up[kLaneColumns];
    values_of<Element>(next, v);
    if (kGate) values_of<float>(next_up, up);
    fetch(t + step);
    if (kGate) apply_gate(in.function, up, v);
    if (kNorm) {
      const int begin = behind * shape.tiles;
      apply_norm(gain, rms_of_warps(in, v, shape.tiles, warp, begin, lane, turn), v);
      if (t >= shape.m) continue;
    }
    if (whole && form.block >= kUsualBlock) {  // This avoids a branch per butterfly stage.
      rotate_k_tile<kUsualBlock>(form.block, true, signs, lane, v);
    } else if (form.block) {
      rotate_k_tile(size, false, signs, lane, v);
    }
    if (form.rows) {
      store_whole(form, t, column, lane, v);
    } else {
      store_planes(form, t, k_tile, lane, v);
    }
  }
}

}  // namespace walsh::cuda
