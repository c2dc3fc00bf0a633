#include "kernels/cuda/attention/prefill.cuh"

namespace walsh::cuda::detail {

void launch_prompt_64(const PromptArgs& args, Stream stream) {
  launch_prompt<64>(args, stream);
}

}  // namespace walsh::cuda::detail
