#include "codec/trellis/cuda/tile_search.cuh"

namespace walsh::cuda::encoding {
namespace {

template <int kGroup>
__global__ void __launch_bounds__(kSearchThreads, 1)
    tile_search_kernel(const __grid_constant__ TileSearchArgs args) {
  extern __shared__ __align__(16) unsigned char memory[];
  TileSearchBlock<kGroup>(args, memory).run();
}

template <int kGroup>
void launch(const TileSearchPlan& plan, const TileSearchArgs& args, Stream stream) {
  const auto kernel = tile_search_kernel<kGroup>;
  allow_most_shared_memory(reinterpret_cast<const void*>(kernel), "tile search");
  kernel<<<static_cast<unsigned>(plan.blocks), kSearchThreads, plan.shared_bytes, stream>>>(args);
  check_launch("tile search");
}

}  // namespace

void launch_tile_search(const TrellisCode& code, const TileSearchPlan& plan,
                        const TileSearchArgs& args, Stream stream) {
  if (plan.products) return launch_tile_products(code, plan, args, stream);
  switch (plan.group) {
    case 2:
      return launch<2>(plan, args, stream);
    case 4:
      return launch<4>(plan, args, stream);
    default:
      return launch<8>(plan, args, stream);
  }
}

}  // namespace walsh::cuda::encoding
