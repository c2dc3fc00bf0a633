#include "cache/cuda/attend_decode.cuh"

namespace walsh::cuda::detail {

void launch_rows_256(const CodedDecodeArgs& args, int splits, Stream stream) {
  launch_rows<256>(args, splits, stream);
}

}  // namespace walsh::cuda::detail
