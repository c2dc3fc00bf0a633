#include "codec/scalar/cuda/device_team.cuh"
#include "codec/scalar/cuda/encode_launch.h"

namespace walsh::cuda::encoding {

void launch_plain(int thresholds, const PassArgs& args, int64_t rows, Stream stream) {
  launch_thresholds<GroupKind::plain>(thresholds, args, rows, stream);
}

}  // namespace walsh::cuda::encoding
