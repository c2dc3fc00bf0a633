#include "kernels/cuda/attention/prefill.cuh"

namespace walsh::cuda::detail {

void launch_prefill_96(const PrefillArgs& args, Stream stream) {
  launch_prefill<96>(args, stream);
}

}  // namespace walsh::cuda::detail
