#include <algorithm>

#include "quantize/cuda/tile_launch.cuh"
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
  launch_search(kernel, plan, args, stream);
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

// All kernels take a multiprocessor per block.
int most_teams(const DeviceInfo& device, int blocks) {
  if (blocks == 1) return device.multiprocessors;
  if (device.code < 90 || device.multiprocessors < blocks) return 0;
  const auto* function = reinterpret_cast<const void*>(tile_search_kernel<2, 8, true>);
  allow_most_shared_memory(function, "tile search");
  const TeamLaunch launch(device.multiprocessors / blocks * blocks, blocks, device.shared_bytes,
                          nullptr);
  int teams = 0;
  check(cudaOccupancyMaxActiveClusters(&teams, function, &launch.config()), "tile search");
  return std::min(teams, device.multiprocessors / blocks);
}

void launch_tile_search(const TrellisCode& code, const TileSearchPlan& plan,
                        const TileSearchArgs& args, Stream stream) {
  if (plan.products) return launch_tile_products(code, plan, args, stream);
  if (code.values == 1) return launch_group<1, false>(plan, args, stream);
  if (args.target_scale == 0) return launch_group<2, false>(plan, args, stream);
  launch_group<2, true>(plan, args, stream);
}

}  // namespace walsh::cuda::encoding
