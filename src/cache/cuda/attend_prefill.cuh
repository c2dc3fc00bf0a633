// Reads a coded cache for prefill attention (kernels/cuda/attention/prefill.cuh). First come the
// stored positions, which load_bundles has decoded to rows, and then the fp16 rows. Queries of a
// block have different borders between the two, so positions near the borders exist in both forms
// and are masked per query. Results are rotated back before they are written.
#pragma once

#include "cache/cuda/attend_prefill.h"
#include "kernels/cuda/attention/coded_tile.cuh"
#include "kernels/cuda/attention/prefill.cuh"

namespace walsh::cuda::detail {

// Returns the positions that the query at `position` sees in one of the forms, of which stored_end
// is `border`. Both ends grow with the position. The first rows of the stored form are the first
// positions, which load_bundles has placed there.
__device__ __forceinline__ Span seen_span(bool exact, int border, int position,
                                          const AttentionRule& rule) {
  const int oldest = first_seen(rule, position);
  return exact ? Span{max(oldest, border), position + 1} : Span{oldest, border};
}

// Computes x <- H x for two rows, in blocks of `block` columns. Butterflies of distance 1 are
// within a lane, those of 2 and 4 between the four lanes of a row, and larger ones between
// registers.
template <int Count>
__device__ __forceinline__ void transform_rows(int block, int lane, float (&x)[Count][4]) {
#pragma unroll
  for (int d = 0; d < Count; ++d) {
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const float a = x[d][e], b = x[d][e + 1];
      x[d][e] = a + b;
      x[d][e + 1] = a - b;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      float& v = x[d][e % 4];
      const int distance = 1 + e / 4;
      const float other = __shfl_xor_sync(~0u, v, distance);
      v = other + ((lane & distance) == 0 ? v : -v);
    }
  }
#pragma unroll
  for (int distance = 1; distance < Count; distance *= 2) {
    if (8 * distance >= block) break;
#pragma unroll
    for (int d = 0; d < Count; ++d) {
      if ((d & distance) != 0) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float a = x[d][e], b = x[d + distance][e];
        x[d][e] = a + b;
        x[d + distance][e] = a - b;
      }
    }
  }
}

// Computes the inverse of the values' rotation, factors * (H x), since H is symmetric. Sums are
// divided by their totals later, which gives the same.
template <typename Shape>
__device__ __forceinline__ void rotate_back(const CodedSide& values, int lane,
                                            PrefillSums<Shape>& run) {
  if (values.block == 0) return;
#pragma unroll
  for (int i = 0; i < Shape::kTiles; ++i)
    transform_rows(values.block, lane, run.sum[i]);
#pragma unroll
  for (int d = 0; d < Shape::kDim / 8; ++d) {
    const float2 factors =
        *reinterpret_cast<const float2*>(values.factors + 8 * d + 2 * (lane % 4));
#pragma unroll
    for (int i = 0; i < Shape::kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        run.sum[i][d][e] *= e % 2 == 0 ? factors.x : factors.y;
    }
  }
}

// Gives tiles of both forms to the kernel. Rows are contiguous, so each form starts at the first
// position that a query of the block sees.
template <typename S>
class CodedTiles {
 public:
  using Shape = S;
  using Args = CodedPrefillArgs;
  static constexpr bool kHidesTiles = true;

  __device__ __forceinline__ CodedTiles(const Args& args, int first, int warp_row, int head)
      : a_(args), sequence_(args.rows.sequences[0]), head_(head / args.group) {
    const int oldest = args.position + first;
    const int latest = args.position + min(first + Shape::kQueries, args.m) - 1;
    const int border = stored_end(args.cache, sequence_, oldest);
    stored_.begin = seen_span(false, border, oldest, args.rule).begin;
    stored_.end = stored_end(args.cache, sequence_, latest);
    exact_ = {seen_span(true, border, oldest, args.rule).begin, latest + 1};
    stored_tiles_ = count(stored_);
    tiles_ = stored_tiles_ + count(exact_);
    row_ = oldest + warp_row;
    last_row_ = row_ + Shape::kTiles * 16 - 1;
    row_border_ = stored_end(args.cache, sequence_, row_);
    last_border_ = stored_end(args.cache, sequence_, last_row_);
  }

  __device__ __forceinline__ int begin() const { return 0; }
  __device__ __forceinline__ int end() const { return tiles_; }
  template <bool Keys>
  __device__ __forceinline__ void load(int i, uint32_t to) const {
    const Tile tile = at(i);
    const FreshRows& from = tile.exact ? a_.exact : a_.stored;
    const int64_t row = head_ * from.capacity + tile.token - from.first;
    CacheView view;  // It describes a page that begins with the tile.
    view.head_dim = Shape::kDim;
    F16Tiles::load<TileLayout<Shape::kDim>, Shape::kTokens, Shape::kThreads>(
        (Keys ? from.keys : from.values) + row * Shape::kDim, view, 0, 0, 0, 0,
        tile.end - tile.token, to, static_cast<int>(threadIdx.x));
  }
  __device__ __forceinline__ bool sees(int i) const {
    const Tile tile = at(i);
    return tile.token < seen_by_last(tile).end &&
           tile.token + Shape::kTokens > seen_by_first(tile).begin;
  }
  __device__ __forceinline__ void mask(int i, int lane, PrefillLogits<Shape>& s) const {
    const Tile tile = at(i);
    const bool all = tile.token >= seen_by_last(tile).begin &&
                     tile.token + Shape::kTokens <= seen_by_first(tile).end;
    if (all) return;
    mask_tile<Shape>(row_, tile.token, lane, s, [&](int position) {
      const int border = stored_end(a_.cache, sequence_, position);
      return seen_span(tile.exact, border, position, a_.rule);
    });
  }
  __device__ __forceinline__ void finish(int lane, PrefillSums<Shape>& run) const {
    rotate_back<Shape>(a_.cache.values, lane, run);
  }

 private:
  struct Tile {
    bool exact;
    // `token` is the first position of the tile, `end` the end of this form's rows.
    int token, end;
  };

  static __device__ __forceinline__ int count(Span span) {
    return max(0, span.end - span.begin + Shape::kTokens - 1) / Shape::kTokens;
  }
  __device__ __forceinline__ Tile at(int i) const {
    if (i < stored_tiles_) return {false, stored_.begin + i * Shape::kTokens, stored_.end};
    return {true, exact_.begin + (i - stored_tiles_) * Shape::kTokens, exact_.end};
  }
  // These return what the first and the last query of the warp see in the form of a tile.
  __device__ __forceinline__ Span seen_by_first(const Tile& tile) const {
    return seen_span(tile.exact, row_border_, row_, a_.rule);
  }
  __device__ __forceinline__ Span seen_by_last(const Tile& tile) const {
    return seen_span(tile.exact, last_border_, last_row_, a_.rule);
  }

  const Args& a_;
  const int sequence_, head_;
  Span stored_, exact_;
  int stored_tiles_, tiles_;
  // These are positions of the warp's queries, and their borders.
  int row_, last_row_, row_border_, last_border_;
};

template <int Dim>
void launch_coded_prefill(const CodedPrefillArgs& args, Stream stream) {
  launch_prefill<CodedTiles<PrefillShape<Dim>>>(args, stream);
}

}  // namespace walsh::cuda::detail
