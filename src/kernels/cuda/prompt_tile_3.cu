#include "kernels/cuda/prompt_tile.cuh"

namespace walsh::cuda::detail {

bool launch_tile_3(TileShape shape, TileLaunch& work, Stream stream) {
  return launch_shape<3, false>(shape, work, stream);
}

}  // namespace walsh::cuda::detail
