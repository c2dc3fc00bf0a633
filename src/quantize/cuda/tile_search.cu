#include "quantize/cuda/tile_search.cuh"

namespace walsh::cuda::encoding {
namespace {

template <int kValues, int kGroup, bool kWhole>
__global__ void __launch_bounds__(kSearchThreads, 1)
    tile_search_kernel(const __grid_constant__ TileSearchArgs args) {
  extern __shared__ __align__(16) unsigned char memory[];
  TileSearchBlock<kValues, kGroup, kWhole>(args, memory).run();
}

template <int kValues, int kGroup, bool kWhole>
void launch(const TileSearchPlan& plan, const TileSearchArgs& args, Stream stream) {
  const auto kernel = tile_search_kernel<kValues, kGroup, kWhole>;
  allow_most_shared_memory(reinterpret_cast<const void*>(kernel), "tile search");
  kernel<<<static_cast<unsigned>(plan.blocks), kSearchThreads, plan.shared_bytes, stream>>>(args);
  check_launch("tile search");
}

template <int kValues, bool kWhole>
void launch_group(const TileSearchPlan& plan, const TileSearchArgs& args, Stream stream) {
  switch (plan.group) {
    case 2:
      return launch<kValues, 2, kWhole>(plan, args, stream);
    case 4:
      return launch<kValues, 4, kWhole>(plan, args, stream);
    default:
      return launch<kValues, 8, kWhole>(plan, args, stream);
  }
}

}  // namespace

void launch_tile_search(const TrellisCode& code, const TileSearchPlan& plan,
                        const TileSearchArgs& args, Stream stream) {
  if (plan.products) return launch_tile_products(code, plan, args, stream);
  if (code.values == 1) return launch_group<1, false>(plan, args, stream);
  if (args.target_scale == 0) return launch_group<2, false>(plan, args, stream);
  launch_group<2, true>(plan, args, stream);
}

}  // namespace walsh::cuda::encoding
