// Prefill attention over a coded cache: the loop of kernels/cuda/attention/prefill.cuh over the
// stored positions, which load_bundles has decoded to rows, and then over the fp16 rows. Queries of
// a block have different borders between the two, so positions near the borders exist in both forms
// and are masked per query. Results are rotated back before they are written.
#pragma once

#include "cache/cuda/attend_prefill.h"
#include "cache/cuda/coded_tile.cuh"
#include "kernels/cuda/attention/prefill.cuh"

namespace walsh::cuda::detail {

// Positions [begin, end).
struct Span {
  int begin, end;
};

// The positions that the query at `position` sees in one of the forms, `border` being its
// stored_end. Both ends grow with the position. The first rows of the stored form are the sinks,
// placed there by load_bundles.
__device__ __forceinline__ Span seen_span(bool exact, int border, int position, int window) {
  const int oldest = first_seen(window, position);
  return exact ? Span{max(oldest, border), position + 1} : Span{oldest, border};
}

// The tiles for a block of queries. Rows are contiguous, so each form starts at the first position
// that a query of the block sees.
template <typename Shape>
struct PrefillMma {
  struct Tile {
    bool exact;
    int token, end;  // first position of the tile, and end of this form's rows
  };
  Span stored, exact;
  int stored_tiles, tiles;

  __device__ __forceinline__ PrefillMma(const CodedPrefillArgs& args, int sequence, int first) {
    const int oldest = args.position + first, window = args.prefill.window;
    const int latest = args.position + min(first + Shape::kQueries, args.prefill.m) - 1;
    const int border = stored_end(args.cache, sequence, oldest);
    stored.begin = seen_span(false, border, oldest, window).begin;
    stored.end = stored_end(args.cache, sequence, latest);
    exact = {seen_span(true, border, oldest, window).begin, latest + 1};
    stored_tiles = count(stored);
    tiles = stored_tiles + count(exact);
  }
  __device__ __forceinline__ Tile operator[](int i) const {
    if (i < stored_tiles) return {false, stored.begin + i * Shape::kTokens, stored.end};
    return {true, exact.begin + (i - stored_tiles) * Shape::kTokens, exact.end};
  }

 private:
  static __device__ __forceinline__ int count(Span span) {
    return max(0, span.end - span.begin + Shape::kTokens - 1) / Shape::kTokens;
  }
};

// What the first and the last of a warp's queries see.
template <typename Shape>
struct WarpSight {
  int first, last, first_border, last_border, window;

  __device__ __forceinline__ WarpSight(const CodedPrefillArgs& args, int sequence, int row)
      : first(row), last(row + Shape::kTiles * 16 - 1), window(args.prefill.window) {
    first_border = stored_end(args.cache, sequence, first);
    last_border = stored_end(args.cache, sequence, last);
  }
  // Whether any query sees any position of a tile, and whether all queries see all of it.
  __device__ __forceinline__ bool any(const typename PrefillMma<Shape>::Tile& tile) const {
    return tile.token < seen_span(tile.exact, last_border, last, window).end &&
           tile.token + Shape::kTokens > seen_span(tile.exact, first_border, first, window).begin;
  }
  __device__ __forceinline__ bool all(const typename PrefillMma<Shape>::Tile& tile) const {
    return tile.token >= seen_span(tile.exact, last_border, last, window).begin &&
           tile.token + Shape::kTokens <= seen_span(tile.exact, first_border, first, window).end;
  }
};

template <typename Shape>
__device__ __forceinline__ void clear_logits(PrefillLogits<Shape>& s) {
#pragma unroll
  for (int i = 0; i < Shape::kTiles; ++i)
#pragma unroll
    for (int n = 0; n < Shape::kTokens / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[i][n][e] = 0;
}

// Sets the logits of positions that a row does not see to minus infinity; `row` is the position of
// the warp's first query.
template <typename Shape>
__device__ __forceinline__ void mask_part(const CodedPrefillArgs& args, int row,
                                          const typename PrefillMma<Shape>::Tile& tile, int lane,
                                          PrefillLogits<Shape>& s) {
  const int sequence = args.prefill.sequences[0];
#pragma unroll
  for (int i = 0; i < Shape::kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = row + 16 * i + lane / 4 + 8 * half;
      const int border = stored_end(args.cache, sequence, position);
      const Span span = seen_span(tile.exact, border, position, args.prefill.window);
#pragma unroll
      for (int n = 0; n < Shape::kTokens / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int token = tile.token + 8 * n + 2 * (lane % 4) + e;
          if (token < span.begin || token >= span.end)
            s[i][n][2 * half + e] = -std::numeric_limits<float>::infinity();
        }
      }
    }
  }
}

// x <- H x for two rows, in blocks of `block` columns: butterflies of distance 1 within a lane, 2
// and 4 between the four lanes of a row, larger ones between registers.
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

// The inverse of the values' rotation, factors * (H x), since H is symmetric. Sums are divided by
// their totals later, which commutes with it.
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

// Grid: x over heads, so that heads with the same keys run together; y over blocks of queries, the
// longest first.
template <typename Shape, bool Capped>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    coded_prefill_kernel(const __grid_constant__ CodedPrefillArgs args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int head = static_cast<int>(blockIdx.x);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * Shape::kQueries;
  allow_next_kernel();
  wait_previous_kernel();
  const int sequence = args.prefill.sequences[0];
  const PrefillMma<Shape> tiles(args, sequence, first);

  const uint32_t shared = shared_address(memory);
  const uint32_t keys = shared + Shape::kQueryBytes;
  const uint32_t values = keys + 2 * Shape::kTileBytes;
  const auto load = [&](uint16_t* FreshRows::*side, uint32_t to, int i) {
    if (i < tiles.tiles) {
      const auto tile = tiles[i];
      const FreshRows& from = tile.exact ? args.exact : args.stored;
      const int64_t row = head / args.prefill.group * from.capacity + tile.token - from.first;
      CacheView view;  // describes a page that begins with the tile
      view.head_dim = Shape::kDim;
      F16Tiles::load<TileLayout<Shape::kDim>, Shape::kTokens, Shape::kThreads>(
          from.*side + row * Shape::kDim, view, 0, 0, 0, 0, tile.end - tile.token,
          to + static_cast<uint32_t>(i % 2 * Shape::kTileBytes), static_cast<int>(threadIdx.x));
    }
    copy_commit();
  };
  load(&FreshRows::keys, keys, 0);
  load(&FreshRows::values, values, 0);
  stage_queries<Shape>(args.prefill, first, head, memory);

  PrefillSums<Shape> run;
  const int warp_row = warp * Shape::kTiles * 16, row = args.position + first + warp_row;
  const WarpSight<Shape> sight(args, sequence, row);
  const uint32_t queries = shared + static_cast<uint32_t>(warp_row * Shape::kRowBytes);
  for (int i = 0; i < tiles.tiles; ++i) {
    const auto tile = tiles[i];
    const auto buffer = static_cast<uint32_t>(i % 2 * Shape::kTileBytes);
    // The vote tells the compiler that the warp does not diverge.
    const bool seen = __any_sync(~0u, sight.any(tile));
    copy_wait<1>();  // the keys
    __syncthreads();
    load(&FreshRows::keys, keys, i + 1);
    PrefillLogits<Shape> s;
    if (seen) {
      clear_logits<Shape>(s);
      multiply_keys<Shape>(queries, keys + buffer, lane, s);
      cap_tile<Shape, Capped>(args.prefill.cap, s);
      if (!sight.all(tile)) mask_part<Shape>(args, row, tile, lane, s);
      soften<Shape>(args.prefill.scale, run, s);
    }
    copy_wait<1>();  // the values
    __syncthreads();
    load(&FreshRows::values, values, i + 1);
    if (seen) multiply_values<Shape>(values + buffer, lane, s, run);
  }
  copy_wait<0>();
  rotate_back<Shape>(args.cache.values, lane, run);
  store_result<Shape>(args.prefill, first + warp_row, head, lane, run);
}

template <int Dim>
void launch_coded_prefill(const CodedPrefillArgs& args, Stream stream) {
  using Shape = PrefillShape<Dim>;
  const LaunchShape shape{
      dim3(static_cast<unsigned>(args.prefill.heads),
           static_cast<unsigned>((args.prefill.m + Shape::kQueries - 1) / Shape::kQueries)),
      dim3(Shape::kThreads), Shape::kShared};
  const bool capped = args.prefill.cap.power != 0;
  launch("coded prefill attention",
         capped ? coded_prefill_kernel<Shape, true> : coded_prefill_kernel<Shape, false>, shape,
         stream, args);
}

}  // namespace walsh::cuda::detail
