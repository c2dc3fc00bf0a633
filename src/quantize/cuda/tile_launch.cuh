// Launches of the kernels of tile_search.h.
#pragma once

#include <cuda_runtime_api.h>

#include "base/cuda/device.h"
#include "quantize/cuda/tile_search.h"

namespace walsh::cuda::encoding {

// The configuration of a launch in teams of so many blocks.
class TeamLaunch {
 public:
  TeamLaunch(int blocks, int team, uint64_t shared_bytes, Stream stream) {
    config_.gridDim = dim3(static_cast<unsigned>(blocks));
    config_.blockDim = dim3(kSearchThreads);
    config_.dynamicSmemBytes = shared_bytes;
    config_.stream = stream;
    config_.attrs = &cluster_;
    if (team == 1) return;
    cluster_.id = cudaLaunchAttributeClusterDimension;
    cluster_.val.clusterDim = {static_cast<unsigned>(team), 1, 1};
    config_.numAttrs = 1;
  }
  TeamLaunch(const TeamLaunch&) = delete;
  TeamLaunch& operator=(const TeamLaunch&) = delete;

  const cudaLaunchConfig_t& config() const { return config_; }

 private:
  cudaLaunchAttribute cluster_{};
  cudaLaunchConfig_t config_{};
};

inline void launch_search(void (*kernel)(TileSearchArgs), const TileSearchPlan& plan,
                          TileSearchArgs args, Stream stream) {
  const auto* function = reinterpret_cast<const void*>(kernel);
  allow_most_shared_memory(function, "tile search");
  const TeamLaunch launch(plan.blocks, plan.team, plan.shared_bytes, stream);
  void* parameters[] = {&args};
  check(cudaLaunchKernelExC(&launch.config(), function, parameters), "tile search");
}

}  // namespace walsh::cuda::encoding
