#include "kernels/cuda/gemm/int8_tile.cuh"

namespace walsh::cuda::detail {

template bool launch_tile<ScalarDecoder<8>, true>(TileShape, TileLaunch&, Stream);

}  // namespace walsh::cuda::detail
