#include "kernels/cuda/prompt_tile.cuh"

namespace walsh::cuda::detail {

bool launch_tile_8_fine(TileShape shape, TileLaunch& work, Stream stream) {
  return launch_shape<8, true>(shape, work, stream);
}

}  // namespace walsh::cuda::detail
