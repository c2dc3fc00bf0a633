#include "codec/trellis/cuda/tile_products.cuh"

namespace walsh::cuda::encoding {
namespace {

template <int kStepBits>
__global__ void __launch_bounds__(kSearchThreads, 1)
    tile_products_kernel(const __grid_constant__ TileSearchArgs args) {
  extern __shared__ __align__(16) unsigned char memory[];
  TileProductsBlock<kStepBits>(args, memory).run();
}

template <int kStepBits>
void launch(const TileSearchPlan& plan, const TileSearchArgs& args, Stream stream) {
  const auto kernel = tile_products_kernel<kStepBits>;
  allow_most_shared_memory(reinterpret_cast<const void*>(kernel), "tile search");
  kernel<<<static_cast<unsigned>(plan.blocks), kSearchThreads, plan.shared_bytes, stream>>>(args);
  check_launch("tile search");
}

}  // namespace

void launch_tile_products(const TrellisCode& code, const TileSearchPlan& plan,
                          const TileSearchArgs& args, Stream stream) {
  switch (code.step_bits) {
    case 5:
      return launch<5>(plan, args, stream);
    case 6:
      return launch<6>(plan, args, stream);
    case 7:
      return launch<7>(plan, args, stream);
    default:
      return launch<8>(plan, args, stream);
  }
}

}  // namespace walsh::cuda::encoding
