#include "kernels/cuda/experts/expert_tile.cuh"

namespace walsh::cuda::detail {

template <>
ExpertTileLauncher expert_tile<ScalarDecoder<8>>(bool fine) {
  return select_expert_tile<ScalarDecoder<8>>(fine);
}

}  // namespace walsh::cuda::detail
