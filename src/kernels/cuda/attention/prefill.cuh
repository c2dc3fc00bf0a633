// Runs prefill attention, which is bound by the tensor cores, as the loop of FlashAttention-2. A
// block takes a head and 64 or 128 queries, one or two tiles of 16 per warp, and loops over tiles
// of positions. The next keys and values arrive while the current ones are multiplied.
//
// A reader of keys and values says which tiles those are, loads them, and says what a query sees of
// them. PageTiles reads fp16 pages, and cache/cuda/attend_prefill.cuh reads a coded cache.
#pragma once

#include "kernels/cuda/attention/prefill.h"
#include "kernels/cuda/attention/prefill_softmax.cuh"
#include "kernels/cuda/launch.h"

namespace walsh::cuda::detail {

template <int Dim, int ValueDim = Dim>
struct PrefillShape {
  static constexpr int kDim = Dim, kValueDim = ValueDim;
  static constexpr int kWarps = 4, kThreads = kWarps * 32;
  // A warp has this many tiles of 16 queries.
  static constexpr int kTiles = ValueDim <= 128 ? 2 : 1;
  // This many warps share the columns of the values for the same queries, because one warp's
  // registers do not hold all sums.
  static constexpr int kSplit = ValueDim <= 256 ? 1 : 2;
  static constexpr int kColumns = ValueDim / kSplit;
  static constexpr int kQueries = kWarps / kSplit * kTiles * 16;
  // A step has this many positions.
  static constexpr int kTokens = Dim <= 128 ? 64 : Dim <= 256 ? 32 : 16;
  static constexpr int kRowBytes = TileLayout<Dim>::kRowBytes;
  static constexpr int kQueryBytes = kQueries * kRowBytes;
  static constexpr int kKeyBytes = kTokens * kRowBytes;  // They are the size of a tile.
  static constexpr int kValueBytes = kTokens * TileLayout<ValueDim>::kRowBytes;
  // Tiles are double-buffered.
  static constexpr int kShared = kQueryBytes + 2 * (kKeyBytes + kValueBytes);
};

// Copies the block's queries to shared memory as halves. Rows from m on and columns from head_dim
// on become 0.
template <typename Shape>
__device__ __forceinline__ void stage_queries(const RowArgs& args, int first, int head,
                                              unsigned char* shared) {
  using Layout = TileLayout<Shape::kDim>;
  const int dim = args.head_dim;
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

// Adds Q K^T to s, for a warp's queries and the tile's positions.
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

// Adds P V to the sums, for the columns of the warp.
template <typename Shape>
__device__ __forceinline__ void multiply_values(uint32_t values, int first_column, int lane,
                                                const PrefillLogits<Shape>& p,
                                                PrefillSums<Shape>& run) {
  using Layout = TileLayout<Shape::kValueDim>;
  const int matrix = lane / 8, r = lane % 8;
  const uint32_t value_row = (values + Layout::offset(r + 8 * (matrix & 1), matrix >> 1)) ^
                             Layout::step(first_column / 16);
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
    for (int d = 0; d < Shape::kColumns / 16; ++d) {
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

// Reads keys and values of consecutive positions of fp16 pages, from the first one that a query of
// the block sees. Tiles are numbered by their position.
template <typename S>
class PageTiles {
 public:
  using Shape = S;
  using Args = PagePrefillArgs;
  static constexpr bool kHidesTiles = false;  // It says whether a warp may see nothing of a tile.

  // The block's first query is row `first`, and the warp's first is `warp_row` after it.
  __device__ __forceinline__ PageTiles(const Args& args, int first, int warp_row, int head)
      : a_(args), head_(head / args.group) {
    const int position = args.rows.positions[0];
    pages_ = args.cache.pages + args.rows.sequences[0] * args.cache.per_sequence;
    end_ = position + min(first + Shape::kQueries, args.m);
    begin_ = first_seen(args.rule, position + first);
    row_ = position + first + warp_row;
  }

  __device__ __forceinline__ int begin() const { return begin_ / Shape::kTokens; }
  __device__ __forceinline__ int end() const {
    return (end_ + Shape::kTokens - 1) / Shape::kTokens;
  }
  template <bool Keys>
  __device__ __forceinline__ void load(int tile, uint32_t to) const {
    const int token = tile * Shape::kTokens;
    CacheView view = a_.cache;
    if (!Keys) view.head_dim = a_.value_dim;
    using Layout = TileLayout<Keys ? Shape::kDim : Shape::kValueDim>;
    F16Tiles::load<Layout, Shape::kTokens, Shape::kThreads>(
        Keys ? view.keys : view.values, view, pages_[token / kPageTokens], head_,
        token % kPageTokens, begin_ - token, end_ - token, to, static_cast<int>(threadIdx.x));
  }
  // Returns whether any query of the warp sees any position of a tile.
  __device__ __forceinline__ bool sees(int) const { return true; }
  __device__ __forceinline__ void mask(int tile, int lane, PrefillLogits<Shape>& s) const {
    mask_tile<Shape>(a_.rule, row_, tile * Shape::kTokens, lane, s);
  }
  __device__ __forceinline__ void finish(int, PrefillSums<Shape>&) const {}

 private:
  const Args& a_;
  const int32_t* pages_;
  const int head_;
  int begin_, end_;  // They bound the visible positions.
  int row_;          // It is the position of the warp's first query.
};

// Attends with one block of queries. The grid spans heads in x, so that heads with the same keys
// run together, and blocks of queries in y, the longest first.
template <typename Reader, bool Capped>
__global__ void __launch_bounds__(Reader::Shape::kThreads, 2)
    prefill_kernel(const __grid_constant__ typename Reader::Args args) {
  using Shape = typename Reader::Shape;
  WALSH_SHARED_TILES(memory);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int head = static_cast<int>(blockIdx.x);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * Shape::kQueries;
  allow_next_kernel();
  wait_previous_kernel();
  const int warp_row = warp / Shape::kSplit * Shape::kTiles * 16;
  const int first_column = warp % Shape::kSplit * Shape::kColumns;
  const Reader reader(args, first, warp_row, head);
  const int last = reader.end();

  const uint32_t shared = shared_address(memory);
  const uint32_t keys = shared + Shape::kQueryBytes;
  const uint32_t values = keys + 2 * Shape::kKeyBytes;
  const auto key_place = [&](int tile) {
    return keys + static_cast<uint32_t>(tile % 2 * Shape::kKeyBytes);
  };
  const auto value_place = [&](int tile) {
    return values + static_cast<uint32_t>(tile % 2 * Shape::kValueBytes);
  };
  const auto load_keys = [&](int tile) {
    if (tile < last) reader.template load<true>(tile, key_place(tile));
    copy_commit();
  };
  const auto load_values = [&](int tile) {
    if (tile < last) reader.template load<false>(tile, value_place(tile));
    copy_commit();
  };
  load_keys(reader.begin());
  load_values(reader.begin());
  stage_queries<Shape>(args, first, head, memory);

  PrefillSums<Shape> run;
  const uint32_t queries = shared + static_cast<uint32_t>(warp_row * Shape::kRowBytes);
  for (int tile = reader.begin(); tile < last; ++tile) {
    // The vote tells the compiler that the warp does not diverge here.
    const bool seen = !Reader::kHidesTiles || __any_sync(~0u, reader.sees(tile));
    copy_wait<1>();  // The keys have arrived.
    __syncthreads();
    load_keys(tile + 1);
    PrefillLogits<Shape> s;
    if (seen) {
      clear_logits<Shape>(s);
      multiply_keys<Shape>(queries, key_place(tile), lane, s);
      cap_logits<Capped>(args.rule, s);
      reader.mask(tile, lane, s);
      soften<Shape>(args.rule.scale, run, s);
    }
    copy_wait<1>();  // The values have arrived.
    __syncthreads();
    load_values(tile + 1);
    if (seen) multiply_values<Shape>(value_place(tile), first_column, lane, s, run);
  }
  copy_wait<0>();
  reader.finish(lane, run);
  store_result<Shape>(args, first + warp_row, head, first_column, lane, run);
}

template <typename Reader>
void launch_prefill(const typename Reader::Args& args, Stream stream) {
  using Shape = typename Reader::Shape;
  const LaunchShape shape{
      dim3(static_cast<unsigned>(args.heads),
           static_cast<unsigned>((args.m + Shape::kQueries - 1) / Shape::kQueries)),
      dim3(Shape::kThreads), Shape::kShared};
  const bool capped = args.rule.cap.power != 0;
  launch("prefill attention", capped ? prefill_kernel<Reader, true> : prefill_kernel<Reader, false>,
         shape, stream, args);
}

template <int Dim>
void launch_page_prefill(const PagePrefillArgs& args, Stream stream) {
  constexpr int kValueDim = Dim == 192 ? 128 : Dim;
  launch_prefill<PageTiles<PrefillShape<Dim, kValueDim>>>(args, stream);
}

}  // namespace walsh::cuda::detail
