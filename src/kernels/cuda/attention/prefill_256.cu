#include "kernels/cuda/attention/prefill.cuh"

namespace walsh::cuda::detail {

void launch_prompt_256(const PromptArgs& args, Stream stream) {
  launch_prompt<256>(args, stream);
}

}  // namespace walsh::cuda::detail
