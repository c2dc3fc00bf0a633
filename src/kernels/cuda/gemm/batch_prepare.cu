// Makes the inputs of a batch. A warp has a k-tile of a row. With a norm a row belongs to a block
// or, if there are few rows, to a cluster of two or four blocks.
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

constexpr int kMostWarps = 32;  // A block has at most this many warps.
constexpr int kLeastTiles = 8;  // A block has at least this many k-tiles of longer rows.
constexpr int kMostRanks = 4;   // A cluster has at most this many blocks.

struct PrepareBatch {
  InputView in;
  FormView form;
  BatchPack to;
  int ranks = 1;        // A row has this many blocks.
  int tiles = 0;        // A row has this many k-tiles.
  int block_tiles = 0;  // A block has this many k-tiles.
};

// Returns the sum of the squares of a row, whose k-tiles belong to the blocks of a cluster.
// `squares` has those of the block's k-tiles, at their places in the row, in shared memory.
__device__ __forceinline__ double row_squares(const PrepareBatch& p, const double* squares) {
  if (p.ranks == 1) {
    __syncthreads();
  } else {
    cluster_sync();
  }
  double total = 0;
  for (int i = static_cast<int>(threadIdx.x % kShares); i < p.tiles; i += kShares)
    total += p.ranks == 1 ? squares[i]
                          : read_of_block<double>(
                                cluster_address(shared_address(squares + i), i / p.block_tiles));
  return total;
}

template <RowSteps Steps>
__global__ void __launch_bounds__(kMostWarps * 32, 1)
    prepare_batch_kernel(const __grid_constant__ PrepareBatch p) {
  WALSH_DYNAMIC_SHARED(double, squares);
  allow_next_kernel();
  const InputView& in = p.in;
  const FormView& form = p.form;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int64_t t = blockIdx.x / p.ranks;
  const int k_tile = static_cast<int>(blockIdx.x) % p.ranks * p.block_tiles + warp;
  const int column = k_tile * kKTileColumns + lane * kLaneColumns;
  const uint32_t signs = sign_bits(form, column);
  float v[kLaneColumns], gain[kLaneColumns];
  if (Steps == RowSteps::norm) load8_whole(in.gain, column, in, gain);
  wait_previous_kernel();

  load8_whole(in.x + t * in.ldx, column, in, v);
  if (Steps == RowSteps::gate) {
    float up[kLaneColumns];
    load8_whole(in.up + t * in.ldx, column, in, up);
    apply_gate(in.function, up, v);
  }
  if constexpr (Steps == RowSteps::norm) {
    const double own = k_tile_squares(v);
    if (lane == 0 && k_tile < p.tiles) squares[k_tile] = own;
    apply_norm(gain, inverse_rms(in, row_squares(p, squares)), v);
    if (p.ranks > 1) cluster_sync();  // No block may end while another one reads its memory.
  }
  if (k_tile >= p.tiles) return;
  if ((k_tile + 1) * kKTileColumns <= form.full && form.block >= kUsualBlock) {
    rotate_k_tile<kUsualBlock>(form.block, true, signs, lane, v);  // It has fewer branches.
  } else {
    rotate_columns(form, k_tile, signs, lane, v);
  }
  GroupScale scale = group_scale(v, kChunkColumns, lane);
  for (int plane = 0; plane < form.planes; ++plane) {
    const Quantized part = quantize_plane(v, scale, kChunkColumns, lane);
    store_batch_input(p.to, static_cast<int>(t), k_tile * form.planes + plane, lane,
                      make_uint2(part.low, part.high), part.scale, part.sum);
  }
}

// Returns how many blocks of a cluster a row gets. All rows together should fill the device.
int ranks_for(int tiles, int m) {
  int ranks = 1;
  while (ranks < kMostRanks && 2 * ranks * m <= current_device().multiprocessors &&
         tiles >= 2 * ranks * kLeastTiles)
    ranks *= 2;
  return ranks;
}

}  // namespace

bool can_prepare_batch(const InputView& in, const FormView& form) {
  return in.vectors && form.rows == nullptr && form.block <= kKTileColumns &&
         form.group == kChunkColumns && !(in.up != nullptr && in.gain != nullptr) &&
         (in.gain == nullptr || form.cols <= kMostWarps * kKTileColumns);
}

void prepare_batch(const InputView& in, const FormView& form, const BatchPack& to, Stream stream) {
  PrepareBatch p{in, form, to, 1, form.cols / kKTileColumns, 0};
  const bool norm = in.gain != nullptr;
  p.ranks = norm ? ranks_for(p.tiles, to.m) : ceil_div(p.tiles, kLeastTiles);
  p.block_tiles = ceil_div(p.tiles, p.ranks);
  const LaunchShape shape{dim3(static_cast<unsigned>(to.m * p.ranks)),
                          dim3(static_cast<unsigned>(p.block_tiles * 32)),
                          norm ? static_cast<size_t>(p.tiles) * sizeof(double) : 0,
                          norm ? static_cast<unsigned>(p.ranks) : 1};
  cuda::launch("inputs of a batch",
               norm               ? prepare_batch_kernel<RowSteps::norm>
               : in.up != nullptr ? prepare_batch_kernel<RowSteps::gate>
                                  : prepare_batch_kernel<RowSteps::none>,
               shape, stream, p);
}

}  // namespace walsh::cuda::detail
