#include "kernels/cuda/gemm/batch_tile.cuh"

namespace walsh::cuda::detail {

template bool launch_batch<TrellisDecoder<5>>(BatchShape, BatchLaunch*, Stream);
template bool launch_batch<TrellisDecoder<7>>(BatchShape, BatchLaunch*, Stream);

}  // namespace walsh::cuda::detail
