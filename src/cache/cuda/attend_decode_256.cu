#include "cache/cuda/attend_decode.cuh"

namespace walsh::cuda::detail {

void launch_rows_256(const RowsArgs& args, int64_t m, int splits, Stream stream) {
  launch_rows<256>(args, m, splits, stream);
}

}  // namespace walsh::cuda::detail
