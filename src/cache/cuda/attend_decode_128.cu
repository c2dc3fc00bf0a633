#include "cache/cuda/attend_decode.cuh"

namespace walsh::cuda::detail {

void launch_rows_128(const CodedDecodeArgs& args, int splits, Stream stream) {
  launch_rows<128>(args, splits, stream);
}

}  // namespace walsh::cuda::detail
