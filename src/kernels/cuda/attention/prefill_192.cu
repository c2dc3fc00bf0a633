#include "kernels/cuda/attention/prefill.cuh"

namespace walsh::cuda::detail {

void launch_prefill_192(const PagePrefillArgs& args, Stream stream) {
  launch_prefill<PageTiles<PrefillShape<192, 128>>>(args, stream);
}

}  // namespace walsh::cuda::detail
