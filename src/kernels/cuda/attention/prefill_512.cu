#include "kernels/cuda/attention/prefill.cuh"

namespace walsh::cuda::detail {

void launch_prefill_512(const PagePrefillArgs& args, Stream stream) {
  launch_prefill<PageTiles<PrefillShape<512>>>(args, stream);
}

}  // namespace walsh::cuda::detail
