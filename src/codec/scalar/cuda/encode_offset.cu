#include "codec/scalar/cuda/device_team.cuh"
#include "codec/scalar/cuda/encode_launch.h"

namespace walsh::cuda::encoding {

// The interleaved formats have 3 bits, so there are at most three thresholds above zero.
void launch_offset(int thresholds, const PassArgs& args, int64_t rows, Stream stream) {
  if (thresholds == 1) {
    launch<GroupKind::offset, 1>(args, rows, stream);
  } else {
    launch<GroupKind::offset, 3>(args, rows, stream);
  }
}

void launch_sub_groups(const PassArgs& args, int64_t rows, Stream stream) {
  launch<GroupKind::sub_groups, 3>(args, rows, stream);
}

}  // namespace walsh::cuda::encoding
