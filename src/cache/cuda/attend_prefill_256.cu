#include "cache/cuda/attend_prefill.cuh"

namespace walsh::cuda::detail {

void launch_coded_prompt_256(const CodedPromptArgs& args, Stream stream) {
  launch_coded_prompt<256>(args, stream);
}

}  // namespace walsh::cuda::detail
