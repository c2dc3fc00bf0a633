#include "kernels/cuda/gemm/batch_tile.cuh"

namespace walsh::cuda::detail {

template bool launch_batch<TrellisDecoder<4>>(BatchShape, BatchLaunch*, Stream);
template bool launch_batch<TrellisDecoder<6>>(BatchShape, BatchLaunch*, Stream);
template bool launch_batch<TrellisDecoder<8>>(BatchShape, BatchLaunch*, Stream);

}  // namespace walsh::cuda::detail
