#include "kernels/cuda/experts/expert_tile.cuh"

namespace walsh::cuda::detail {

template <>
ExpertTileLauncher expert_tile<ScalarDecoder<2>>(bool fine) {
  return select_expert_tile<ScalarDecoder<2>>(fine);
}

}  // namespace walsh::cuda::detail
