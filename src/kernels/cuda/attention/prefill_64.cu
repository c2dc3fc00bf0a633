#include "kernels/cuda/attention/prefill.cuh"

namespace walsh::cuda::detail {

void launch_prefill_64(const PagePrefillArgs& args, Stream stream) {
  launch_prefill<PageTiles<PrefillShape<64>>>(args, stream);
}

}  // namespace walsh::cuda::detail
