// Prefill attention, bound by the tensor cores: the loop of FlashAttention-2. A block takes a head
// and 64 or 128 queries, one or two tiles of 16 per warp, and loops over tiles of positions; the
// next keys and values arrive while the current ones are multiplied.
#pragma once

#include "kernels/cuda/attention/prefill_softmax.cuh"
#include "kernels/cuda/launch.h"

namespace walsh::cuda::detail {

template <int Dim>
struct PrefillShape {
  static constexpr int kDim = Dim;
  static constexpr int kWarps = 4, kThreads = kWarps * 32;
  static constexpr int kTiles = Dim <= 128 ? 2 : 1;  // tiles of 16 queries per warp
  static constexpr int kQueries = kWarps * kTiles * 16;
  static constexpr int kTokens = Dim <= 128 ? 64 : 32;  // positions per step
  static constexpr int kRowBytes = TileLayout<Dim>::kRowBytes;
  static constexpr int kQueryBytes = kQueries * kRowBytes;
  static constexpr int kTileBytes = kTokens * kRowBytes;
  static constexpr int kShared = kQueryBytes + 4 * kTileBytes;  // keys and values, double-buffered
};

// Copies the block's queries to shared memory as halves; rows from m on and columns from head_dim
// on are 0.
template <typename Shape>
__device__ __forceinline__ void stage_queries(const PrefillArgs& args, int first, int head,
                                              unsigned char* shared) {
  using Layout = TileLayout<Shape::kDim>;
  const int dim = args.cache.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < Shape::kQueries * Layout::kPieces;
       i += Shape::kThreads) {
    const int row = i / Layout::kPieces, piece = i % Layout::kPieces;
    uint4 packed = make_uint4(0, 0, 0, 0);
    if (first + row < args.m && piece * 8 < dim) {
      const float2* q =
          reinterpret_cast<const float2*>(args.q + (first + row) * args.ldq + head * dim) +
          piece * 4;
      packed.x = pack_halves(q[0].x, q[0].y);
      packed.y = pack_halves(q[1].x, q[1].y);
      packed.z = pack_halves(q[2].x, q[2].y);
      packed.w = pack_halves(q[3].x, q[3].y);
    }
    *reinterpret_cast<uint4*>(shared + Layout::offset(row, piece)) = packed;
  }
}

// s = Q K^T for a warp's queries and the tile's positions.
template <typename Shape>
__device__ __forceinline__ void multiply_keys(uint32_t queries, uint32_t keys, int lane,
                                              PrefillLogits<Shape>& s) {
  using Layout = TileLayout<Shape::kDim>;
  const int matrix = lane / 8, r = lane % 8;
  const uint32_t query_row = queries + Layout::offset(r + 8 * (matrix & 1), matrix >> 1);
  const uint32_t key_row = keys + Layout::offset(r + 8 * (matrix >> 1), matrix & 1);
#pragma unroll
  for (int k = 0; k < Shape::kDim / 16; ++k) {
    uint32_t a[Shape::kTiles][4];
#pragma unroll
    for (int i = 0; i < Shape::kTiles; ++i)
      load_matrices(a[i], (query_row ^ Layout::step(k)) + i * 16 * Layout::kRowBytes);
#pragma unroll
    for (int n = 0; n < Shape::kTokens / 16; ++n) {
      uint32_t b[4];
      load_matrices(b, (key_row ^ Layout::step(k)) + n * 16 * Layout::kRowBytes);
#pragma unroll
      for (int i = 0; i < Shape::kTiles; ++i) {
        mma_f16(s[i][2 * n], a[i], b[0], b[1]);
        mma_f16(s[i][2 * n + 1], a[i], b[2], b[3]);
      }
    }
  }
}

// sum += P V.
template <typename Shape>
__device__ __forceinline__ void multiply_values(uint32_t values, int lane,
                                                const PrefillLogits<Shape>& p,
                                                PrefillSums<Shape>& run) {
  using Layout = TileLayout<Shape::kDim>;
  const int matrix = lane / 8, r = lane % 8;
  const uint32_t value_row = values + Layout::offset(r + 8 * (matrix & 1), matrix >> 1);
#pragma unroll
  for (int k = 0; k < Shape::kTokens / 16; ++k) {
    uint32_t a[Shape::kTiles][4];
#pragma unroll
    for (int i = 0; i < Shape::kTiles; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        a[i][e] =
            pack_halves(p[i][2 * k + e / 2][2 * (e % 2)], p[i][2 * k + e / 2][2 * (e % 2) + 1]);
#pragma unroll
    for (int d = 0; d < Shape::kDim / 16; ++d) {
      uint32_t b[4];
      load_transposed(b, (value_row ^ Layout::step(d)) + k * 16 * Layout::kRowBytes);
#pragma unroll
      for (int i = 0; i < Shape::kTiles; ++i) {
        mma_f16(run.sum[i][2 * d], a[i], b[0], b[1]);
        mma_f16(run.sum[i][2 * d + 1], a[i], b[2], b[3]);
      }
    }
  }
}

// Grid: x over heads, so that heads with the same keys run together; y over blocks of queries, the
// longest first.
template <typename Shape, bool Capped>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    prefill_kernel(const __grid_constant__ PrefillArgs args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int head = static_cast<int>(blockIdx.x);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * Shape::kQueries;
  allow_next_kernel();
  wait_previous_kernel();
  const int position = args.positions[0];
  const int32_t* pages = args.cache.pages + args.sequences[0] * args.cache.per_sequence;
  const int end = position + min(first + Shape::kQueries, args.m);  // visible positions
  const int begin = first_seen(args.window, position + first);
  const int first_tile = begin / Shape::kTokens;
  const int last_tile = (end + Shape::kTokens - 1) / Shape::kTokens;

  const uint32_t shared = shared_address(memory);
  const uint32_t keys = shared + Shape::kQueryBytes;
  const uint32_t values = keys + 2 * Shape::kTileBytes;
  const auto load = [&](const uint16_t* pool, uint32_t to, int tile) {
    if (tile < last_tile) {
      const int token = tile * Shape::kTokens;
      F16Tiles::load<TileLayout<Shape::kDim>, Shape::kTokens, Shape::kThreads>(
          pool, args.cache, pages[token / kPageTokens], head / args.group, token % kPageTokens,
          begin - token, end - token, to + static_cast<uint32_t>(tile % 2 * Shape::kTileBytes),
          static_cast<int>(threadIdx.x));
    }
    copy_commit();
  };
  load(args.cache.keys, keys, first_tile);
  load(args.cache.values, values, first_tile);
  stage_queries<Shape>(args, first, head, memory);

  PrefillSums<Shape> run;
  const int warp_row = warp * Shape::kTiles * 16, row = position + first + warp_row;
  const uint32_t queries = shared + static_cast<uint32_t>(warp_row * Shape::kRowBytes);
  for (int tile = first_tile; tile < last_tile; ++tile) {
    const int token = tile * Shape::kTokens;
    const auto buffer = static_cast<uint32_t>(tile % 2 * Shape::kTileBytes);
    copy_wait<1>();  // the keys
    __syncthreads();
    load(args.cache.keys, keys, tile + 1);
    PrefillLogits<Shape> s = {};
    multiply_keys<Shape>(queries, keys + buffer, lane, s);
    cap_tile<Shape, Capped>(args.cap, s);
    mask_tile<Shape>(row, token, args.window, lane, s);
    soften<Shape>(args.scale, run, s);
    copy_wait<1>();  // the values
    __syncthreads();
    load(args.cache.values, values, tile + 1);
    multiply_values<Shape>(values + buffer, lane, s, run);
  }
  copy_wait<0>();
  store_result<Shape>(args, first + warp_row, head, lane, run);
}

template <int Dim>
void launch_prefill(const PrefillArgs& args, Stream stream) {
  using Shape = PrefillShape<Dim>;
  const LaunchShape shape{
      dim3(static_cast<unsigned>(args.heads),
           static_cast<unsigned>((args.m + Shape::kQueries - 1) / Shape::kQueries)),
      dim3(Shape::kThreads), Shape::kShared};
  const bool capped = args.cap.power != 0;
  launch("prefill attention", capped ? prefill_kernel<Shape, true> : prefill_kernel<Shape, false>,
         shape, stream, args);
}

}  // namespace walsh::cuda::detail
