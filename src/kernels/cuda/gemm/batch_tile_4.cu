#include "kernels/cuda/gemm/batch_tile.cuh"

namespace walsh::cuda::detail {

template bool launch_batch<ScalarDecoder<4>>(BatchShape, BatchLaunch*, Stream);

}  // namespace walsh::cuda::detail
