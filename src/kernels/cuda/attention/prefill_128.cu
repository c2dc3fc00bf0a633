#include "kernels/cuda/attention/prefill.cuh"

namespace walsh::cuda::detail {

void launch_prompt_128(const PromptArgs& args, Stream stream) {
  launch_prompt<128>(args, stream);
}

}  // namespace walsh::cuda::detail
