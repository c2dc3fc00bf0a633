#include "cache/cuda/attend_prefill.cuh"

namespace walsh::cuda::detail {

void launch_coded_prompt_128(const CodedPromptArgs& args, Stream stream) {
  launch_coded_prompt<128>(args, stream);
}

}  // namespace walsh::cuda::detail
