#include "kernels/cuda/attention/prefill.cuh"

namespace walsh::cuda::detail {

void launch_prefill_64(const PrefillArgs& args, Stream stream) {
  launch_prefill<64>(args, stream);
}

}  // namespace walsh::cuda::detail
