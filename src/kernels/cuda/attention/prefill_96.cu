#include "kernels/cuda/attention/prefill.cuh"

namespace walsh::cuda::detail {

void launch_prompt_96(const PromptArgs& args, Stream stream) {
  launch_prompt<96>(args, stream);
}

}  // namespace walsh::cuda::detail
