#include "codec/trellis/cuda/feedback_kernels.cuh"

namespace walsh::cuda::encoding {
namespace {

__global__ void __launch_bounds__(kTargetThreads)
    targets_kernel(const __grid_constant__ FeedbackArgs args,
                   const __grid_constant__ TileColumn column) {
  set_targets(args, column);
}

__global__ void __launch_bounds__(kSetThreads)
    set_kernel(const __grid_constant__ FeedbackArgs args, const __grid_constant__ TileColumn column,
               const __grid_constant__ LevelTable table) {
  __shared__ float errors[kTileCols];
  set_row(args, column, table, errors);
}

__global__ void __launch_bounds__(kProductThreads)
    product_kernel(const __grid_constant__ FeedbackArgs args,
                   const __grid_constant__ FactorProduct product) {
  __shared__ __align__(16) ProductMemory memory;
  add_product(args, product, memory);
}

__global__ void __launch_bounds__(kFactorThreads)
    factor_kernel(const __grid_constant__ FeedbackArgs args, double* factors) {
  __shared__ double terms[2 * kFactorThreads];
  row_factor(args, factors, terms);
}

unsigned pieces(int64_t count, int64_t size) {
  return static_cast<unsigned>((count + size - 1) / size);
}

}  // namespace

void launch_targets(const FeedbackArgs& args, const TileColumn& column, Stream stream) {
  const unsigned tiles = pieces(args.rows, kTileRows);
  targets_kernel<<<pieces(tiles * kTileRows, kTargetThreads), kTargetThreads, 0, stream>>>(args,
                                                                                           column);
  check_launch("tile targets");
}

void launch_set(const FeedbackArgs& args, const TileColumn& column, const LevelTable& table,
                Stream stream) {
  set_kernel<<<static_cast<unsigned>(args.rows), kSetThreads, 0, stream>>>(args, column, table);
  check_launch("tile errors");
}

void launch_product(const FeedbackArgs& args, const FactorProduct& product, Stream stream) {
  const dim3 grid(pieces(args.size - product.first, kProductTile), pieces(args.rows, kProductTile));
  product_kernel<<<grid, kProductThreads, 0, stream>>>(args, product);
  check_launch("error feedback");
}

void launch_row_factors(const FeedbackArgs& args, double* factors, Stream stream) {
  factor_kernel<<<static_cast<unsigned>(args.rows), kFactorThreads, 0, stream>>>(args, factors);
  check_launch("row factors");
}

}  // namespace walsh::cuda::encoding
