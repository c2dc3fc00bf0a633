#include "cache/cuda/attend_decode.cuh"

namespace walsh::cuda::detail {

void launch_rows_64(const CodedDecodeArgs& args, int splits, Stream stream) {
  launch_rows<64>(args, splits, stream);
}

}  // namespace walsh::cuda::detail
