// Makes the inputs of a batch. A row belongs to a block or, if there are few rows, to a cluster of
// blocks, because its values are divided by the largest scale of the whole row. A warp has one to
// four k-tiles of it in registers.
#include <algorithm>

#include "base/checked.h"
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/gemm/batch_prepare.h"
#include "kernels/cuda/gemm/batch_values.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/prepare_many.cuh"

namespace walsh::cuda::detail {
namespace {

constexpr int kMostWarps = 32;      // A block has at most this many warps.
constexpr int kMostRowTiles = 128;  // A row has at most this many k-tiles.
constexpr int kLeastTiles = 8;      // A block of a cluster has at least this many k-tiles.
constexpr int kMostRanks = 4;       // A cluster has at most this many blocks.

struct PrepareBatch {
  InputView in;
  FormView form;
  BatchPack to;
  int ranks = 1;        // A row has this many blocks.
  int tiles = 0;        // A row has this many k-tiles.
  int block_tiles = 0;  // A block has this many k-tiles.
};

// Holds what the blocks of a row tell each other.
struct RowShares {
  // These are of the block's k-tiles, at their places in the row.
  double squares[kMostRowTiles];
  float largest[kMostWarps];  // They are scales of the block's warps.
};

// Points to the shared memory of the blocks of a row. Blocks of a cluster read that of the others.
struct RowBlocks {
  RowShares* own;
  int ranks;

  __device__ __forceinline__ void meet() const {
    if (ranks == 1) {
      __syncthreads();
    } else {
      cluster_sync();
    }
  }
  template <typename T>
  __device__ __forceinline__ T read(const T* p, int rank) const {
    return ranks == 1 ? *p : read_of_block<T>(cluster_address(shared_address(p), rank));
  }
};

// Transposes the words of four lanes whose places are `place`: lane i of them gets word i of all.
// Their numbers differ by `step` and 2 * step.
__device__ __forceinline__ void transpose_words(uint32_t (&w)[4], int place, int step) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = (place & bit) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      const uint32_t got = __shfl_xor_sync(~0u, upper ? w[i] : w[i | bit], step * bit);
      (upper ? w[i] : w[i | bit]) = got;
    }
  }
}

// Packs eight numbers of a lane, which are int8, times their scale.
__device__ __forceinline__ void pack_values(const float (&q)[kLaneColumns], float scale,
                                            uint32_t (&w)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    w[i] = pair_of(q[2 * i] * scale, q[2 * i + 1] * scale);
}

// Quantizes the only plane of an input like quantize_plane(), but keeps the numbers as floats. If
// the scale is zero or NaN, so are the numbers or their products with it.
__device__ __forceinline__ void pack_only_plane(const float (&v)[kLaneColumns], const GroupScale& s,
                                                float inverse, uint32_t (&w)[4]) {
  constexpr float kRound = 12582912.0f;  // It is 1.5 * 2^23; adding it rounds.
  float q[kLaneColumns];
#pragma unroll
  for (int e = 0; e < kLaneColumns; ++e)
    q[e] = v[e] * s.inverse + kRound - kRound;
  pack_values(q, s.scale * inverse, w);
}

__device__ __forceinline__ void pack_plane(const Quantized& part, float inverse, uint32_t (&w)[4]) {
  float q[kLaneColumns];
#pragma unroll
  for (int e = 0; e < kLaneColumns; ++e)
    q[e] = signed_byte(e < 4 ? part.low : part.high, e % 4);
  pack_values(q, part.scale * inverse, w);
}

// Stores eight neighbouring columns of a lane as f16.
template <BatchOrder Order>
__device__ __forceinline__ void store_operand(const BatchPack& to, int vector, int chunk, int lane,
                                              uint32_t (&w)[4], int chunks) {
  const int eight = lane % 8;  // It counts within the chunk.
  const int place = Order == BatchOrder::eights ? eight % 4 : eight / 2;
  const int first = Order == BatchOrder::eights ? eight / 4 : eight % 2;
  transpose_words(w, place, Order == BatchOrder::eights ? 1 : 2);
  const int in_block = vector % to.vectors;
  std::byte* at = to.to + (static_cast<int64_t>(vector / to.vectors) * chunks + chunk) *
                              batch_chunk_bytes(to.vectors);
  reinterpret_cast<uint4*>(at)[in_block * 8 + ((4 * first + place) ^ (in_block % 8))] =
      make_uint4(w[0], w[1], w[2], w[3]);
}

template <int Tiles, RowSteps Steps, BatchOrder Order>
__device__ __forceinline__ void prepare_batch_row(const PrepareBatch& p, const RowBlocks& blocks) {
  const InputView& in = p.in;
  const FormView& form = p.form;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  const int rank = static_cast<int>(blockIdx.x) % p.ranks;
  const int64_t t = blockIdx.x / p.ranks;
  const int begin = rank * p.block_tiles, end = min(begin + p.block_tiles, p.tiles);
  const auto tile_of = [&](int i) { return begin + warp + i * warps; };
  const auto column_of = [&](int i) {  // What other blocks have counts as beyond the row.
    return (tile_of(i) < end ? tile_of(i) : p.tiles) * kKTileColumns + lane * kLaneColumns;
  };
  uint32_t signs[Tiles];
  float gain[kLaneColumns];
#pragma unroll
  for (int i = 0; i < Tiles; ++i)
    signs[i] = sign_bits(form, column_of(i));
  if (Steps == RowSteps::norm) load8_whole(in.gain, column_of(0), in, gain);
  wait_previous_kernel();

  float v[Tiles][kLaneColumns];
#pragma unroll
  for (int i = 0; i < Tiles; ++i)
    load8_whole(in.x + t * in.ldx, column_of(i), in, v[i]);
  if (Steps == RowSteps::gate) {
#pragma unroll
    for (int i = 0; i < Tiles; ++i) {
      float up[kLaneColumns];
      load8_whole(in.up + t * in.ldx, column_of(i), in, up);
      apply_gate(in.function, up, v[i]);
    }
  }
  if constexpr (Steps == RowSteps::norm) {
    static_assert(Tiles == 1, "the gains of one k-tile are kept");
    const double own = k_tile_squares(v[0]);
    if (lane == 0 && tile_of(0) < end) blocks.own->squares[tile_of(0)] = own;
    blocks.meet();
    const int share = lane % kShares;
    double total = 0;
    for (int k_tile = share; k_tile < p.tiles; k_tile += kShares)
      total += blocks.read(blocks.own->squares + k_tile, k_tile / p.block_tiles);
    apply_norm(gain, inverse_rms(in, total), v[0]);
  }

  GroupScale scale[Tiles];
  float largest = 0;
#pragma unroll
  for (int i = 0; i < Tiles; ++i) {
    const int k_tile = tile_of(i);
    const bool whole = (k_tile + 1) * kKTileColumns <= form.full;
    if (whole && form.block >= kUsualBlock) {  // This avoids a branch per butterfly stage.
      rotate_k_tile<kUsualBlock>(form.block, true, signs[i], lane, v[i]);
    } else {
      rotate_columns(form, k_tile, signs[i], lane, v[i]);
    }
    scale[i] = group_scale(v[i], kChunkColumns, lane);
    if (k_tile < end) largest = fmaxf(largest, scale[i].scale);  // fmaxf ignores NaN.
  }
  const uint32_t of_warp = __reduce_max_sync(~0u, __float_as_uint(largest));
  if (lane == 0) blocks.own->largest[warp] = __uint_as_float(of_warp);
  blocks.meet();
  uint32_t of_row = 0;
  for (int r = 0; lane < warps && r < p.ranks; ++r)
    of_row = max(of_row, __float_as_uint(blocks.read(blocks.own->largest + lane, r)));
  largest = __uint_as_float(__reduce_max_sync(~0u, of_row));
  if (rank == 0 && threadIdx.x == 0) p.to.vector_scales[t] = largest;
  const float inverse = batch_inverse(largest);

  const int chunks = p.tiles * form.planes * kBatchChunks;
#pragma unroll
  for (int i = 0; i < Tiles; ++i) {
    const int k_tile = tile_of(i);
    if (k_tile >= end) break;
    const auto store = [&](int plane, uint32_t(&w)[4]) {
      const int chunk = (k_tile * form.planes + plane) * kBatchChunks + lane / 8;
      store_operand<Order>(p.to, static_cast<int>(t), chunk, lane, w, chunks);
    };
    uint32_t w[4];
    if (form.planes == 1) {
      pack_only_plane(v[i], scale[i], inverse, w);
      store(0, w);
      continue;
    }
    for (int plane = 0; plane < form.planes; ++plane) {
      pack_plane(quantize_plane(v[i], scale[i], kChunkColumns, lane), inverse, w);
      store(plane, w);
    }
  }
  if (p.ranks > 1) blocks.meet();  // No block may end while another one reads its memory.
}

template <int Tiles, RowSteps Steps, BatchOrder Order>
__global__ void __launch_bounds__(kMostWarps * 32, 1)
    prepare_batch_kernel(const __grid_constant__ PrepareBatch p) {
  WALSH_DYNAMIC_SHARED(unsigned char, memory);
  allow_next_kernel();
  prepare_batch_row<Tiles, Steps, Order>(p, {reinterpret_cast<RowShares*>(memory), p.ranks});
}

using Kernel = void (*)(const PrepareBatch);

template <BatchOrder Order>
Kernel kernel_for(RowSteps steps, int tiles) {
  if (steps == RowSteps::norm) return prepare_batch_kernel<1, RowSteps::norm, Order>;
  if (steps == RowSteps::gate) {
    return tiles == 1   ? prepare_batch_kernel<1, RowSteps::gate, Order>
           : tiles == 2 ? prepare_batch_kernel<2, RowSteps::gate, Order>
                        : prepare_batch_kernel<4, RowSteps::gate, Order>;
  }
  return tiles == 1   ? prepare_batch_kernel<1, RowSteps::none, Order>
         : tiles == 2 ? prepare_batch_kernel<2, RowSteps::none, Order>
                      : prepare_batch_kernel<4, RowSteps::none, Order>;
}

// Returns how many blocks a row gets. All rows together should fill the device.
int ranks_for(int tiles, int m) {
  int ranks = 1;
  while (ranks < kMostRanks && 2 * ranks * m <= current_device().multiprocessors &&
         tiles >= 2 * ranks * kLeastTiles)
    ranks *= 2;
  return ranks;
}

}  // namespace

bool can_prepare_batch(const InputView& in, const FormView& form) {
  const int tiles = form.cols / kKTileColumns;
  return in.vectors && form.rows == nullptr && form.block <= kKTileColumns &&
         form.group == kChunkColumns && !(in.up != nullptr && in.gain != nullptr) &&
         tiles <= (in.gain != nullptr ? kMostWarps : kMostRowTiles);
}

void prepare_batch(const InputView& in, const FormView& form, const BatchPack& to, Stream stream) {
  PrepareBatch p{in, form, to, 1, form.cols / kKTileColumns, 0};
  p.ranks = ranks_for(p.tiles, to.m);
  p.block_tiles = ceil_div(p.tiles, p.ranks);
  const RowSteps steps = in.gain != nullptr ? RowSteps::norm
                         : in.up != nullptr ? RowSteps::gate
                                            : RowSteps::none;
  // Small blocks have room beside those of products, which then start early.
  const bool small = steps == RowSteps::norm || p.block_tiles <= kLeastTiles;
  const int tiles = p.block_tiles > 2 * kMostWarps         ? 4
                    : !small || p.block_tiles > kMostWarps ? 2
                                                           : 1;
  const LaunchShape shape{dim3(static_cast<unsigned>(to.m * p.ranks)),
                          dim3(static_cast<unsigned>(ceil_div(p.block_tiles, tiles) * 32)),
                          sizeof(RowShares), static_cast<unsigned>(p.ranks)};
  cuda::launch("inputs of a batch",
               to.order == BatchOrder::tiles ? kernel_for<BatchOrder::tiles>(steps, tiles)
                                             : kernel_for<BatchOrder::eights>(steps, tiles),
               shape, stream, p);
}

}  // namespace walsh::cuda::detail
