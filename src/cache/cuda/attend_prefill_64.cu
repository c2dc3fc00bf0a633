#include "cache/cuda/attend_prefill.cuh"

namespace walsh::cuda::detail {

void launch_coded_prefill_64(const CodedPrefillArgs& args, Stream stream) {
  launch_prefill<CodedTiles<PrefillShape<64>>>(args, stream);
}

}  // namespace walsh::cuda::detail
