#include "codec/scalar/cuda/encode_launch.h"

namespace walsh::cuda::encoding {

void launch_pass(GroupKind kind, int thresholds, const PassArgs& args, int64_t rows,
                 Stream stream) {
  switch (kind) {
    case GroupKind::plain:
      return launch_kind<GroupKind::plain>(thresholds, args, rows, stream);
    case GroupKind::offset:
      return launch_kind<GroupKind::offset>(thresholds, args, rows, stream);
    case GroupKind::sub_groups:
      return launch_kind<GroupKind::sub_groups>(thresholds, args, rows, stream);
    case GroupKind::row:
      return launch_kind<GroupKind::row>(thresholds, args, rows, stream);
    case GroupKind::absmax:
      return launch_kind<GroupKind::absmax>(thresholds, args, rows, stream);
  }
}

}  // namespace walsh::cuda::encoding
