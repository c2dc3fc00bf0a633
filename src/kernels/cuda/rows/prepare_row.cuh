// Prepares one row of an input with blocks of 8 warps. A warp takes 256 columns (1,024 if the
// Hadamard block is larger). Every block sums the squares of the whole row itself.
#pragma once

#include <span>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/rows/row_transform.cuh"

namespace walsh::cuda {

inline constexpr int kPrepareWarps = 8;

// Says how many k-tiles a warp takes at once and how many blocks a row needs, for all forms.
struct PrepareShape {
  int span = 1, blocks = 0;
};
inline PrepareShape prepare_shape(std::span<const FormView> forms) {
  PrepareShape shape;
  int cols = 0;
  for (const FormView& form : forms) {
    if (form.block > kKTileColumns) shape.span = 4;
    if (form.cols > cols) cols = form.cols;
  }
  const int per_block = kPrepareWarps * shape.span * kKTileColumns;
  shape.blocks = (cols + per_block - 1) / per_block;
  return shape;
}

// Computes the butterfly stages of distance 256 and 512 between the k-tiles of a span.
template <int Span>
__device__ __forceinline__ void rotate_span(const int (&size)[Span],
                                            float (&v)[Span][kLaneColumns]) {
#pragma unroll
  for (int h = 1; h < Span; h *= 2) {
#pragma unroll
    for (int u = 0; u < Span; ++u) {
      if ((u & h) != 0 || size[u] <= h * kKTileColumns) continue;
#pragma unroll
      for (int e = 0; e < kLaneColumns; ++e)
        butterfly(v[u][e], v[u | h][e]);
    }
  }
}

// Returns 1 / rms of input t to the block's threads. A warp sums two shares, whose loads overlap.
__device__ __forceinline__ float row_inverse_rms(const InputView& in, int64_t t, int warp,
                                                 int lane) {
  constexpr int kParts = kShares / kPrepareWarps;
  __shared__ double shares[kShares];
  double sum[kParts] = {};
  const bool plain = in.vectors && !in.up;  // No branch separates the loads then.
  for (int k_tile = warp; k_tile * kKTileColumns < in.width; k_tile += kShares) {
    const int column = k_tile * kKTileColumns + lane * kLaneColumns;
    constexpr int kStep = kPrepareWarps * kKTileColumns;
    float v[kParts][kLaneColumns];
    if (plain) {
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        load8_whole(in.x + t * in.ldx, column + p * kStep, in, v[p]);
    } else {
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        load_input(in, t, column + p * kStep, v[p]);
    }
#pragma unroll
    for (int p = 0; p < kParts; ++p)
      sum[p] += k_tile_squares(v[p]);
  }
#pragma unroll
  for (int p = 0; p < kParts; ++p)
    if (lane == 0) shares[warp + p * kPrepareWarps] = sum[p];
  __syncthreads();
  return inverse_rms(in, shares[lane % kShares]);
}

// Makes block `block` of row t of a form. load(column, v) loads a lane's 8 values from `column` on
// and is called by whole warps. Waits for the preceding kernel.
template <int Span, typename Load>
__device__ __forceinline__ void prepare_row(const InputView& in, const FormView& form, int64_t t,
                                            int block, const Load& load) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int first = (block * kPrepareWarps + warp) * Span;
  const auto column_of = [&](int u) { return (first + u) * kKTileColumns + lane * kLaneColumns; };
  // This loads what does not depend on the preceding kernel before it waits for that.
  float gain[Span][kLaneColumns];
  uint32_t signs[Span];
#pragma unroll
  for (int u = 0; u < Span; ++u) {
    if (in.gain) load8(in.gain, column_of(u), in, gain[u]);
    signs[u] = sign_bits(form, column_of(u));
  }
  wait_previous_kernel();
  float v[Span][kLaneColumns];
#pragma unroll
  for (int u = 0; u < Span; ++u)
    load(column_of(u), v[u]);
  const float inverse = in.gain ? row_inverse_rms(in, t, warp, lane) : 0.0f;
  if (first * kKTileColumns >= form.cols) return;
  int size[Span];
#pragma unroll
  for (int u = 0; u < Span; ++u) {
    if (in.gain) apply_norm(gain[u], inverse, v[u]);
    const bool whole = (first + u + 1) * kKTileColumns <= form.full;
    size[u] = !form.block ? 0 : whole ? form.block : segment_size(form, column_of(u));
    if (form.block) rotate_k_tile(size[u], whole, signs[u], lane, v[u]);
  }
  rotate_span<Span>(size, v);
#pragma unroll
  for (int u = 0; u < Span; ++u) {
    if ((first + u) * kKTileColumns >= form.cols) break;
    if (form.rows) {
      store_rows(form, t, column_of(u), v[u]);
    } else {
      store_planes(form, t, first + u, lane, v[u]);
    }
  }
}

}  // namespace walsh::cuda
