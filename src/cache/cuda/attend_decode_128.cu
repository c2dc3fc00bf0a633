#include "cache/cuda/attend_decode.cuh"

namespace walsh::cuda::detail {

void launch_rows_128(const RowsArgs& args, int64_t m, int splits, Stream stream) {
  launch_rows<128>(args, m, splits, stream);
}

}  // namespace walsh::cuda::detail
