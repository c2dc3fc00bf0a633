// The meetings of a team's blocks on the host, each of which is a thread
// (kernels/emulated/cluster.h).
#pragma once

#include "kernels/emulated/cluster.h"

namespace walsh::cuda::encoding {

inline void meet_team() {
  emulated::block().sync_block();
  if (threadIdx.x == 0) emulated::Cluster::own().meet();
  emulated::block().sync_block();
}

}  // namespace walsh::cuda::encoding
