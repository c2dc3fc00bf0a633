#include "cache/cuda/attend_prefill.cuh"

namespace walsh::cuda::detail {

void launch_coded_prompt_64(const CodedPromptArgs& args, Stream stream) {
  launch_coded_prompt<64>(args, stream);
}

}  // namespace walsh::cuda::detail
