#include <array>
#include <mutex>

#include "kernels/cuda/launch.h"
#include "walsh/error.h"

namespace walsh::cuda {

const DeviceInfo& current_device() {
  static constexpr int kMaxDevices = 64;
  static std::array<std::once_flag, kMaxDevices> asked;
  static std::array<DeviceInfo, kMaxDevices> known;
  int index = 0;
  check(cudaGetDevice(&index), "device");
  if (index >= kMaxDevices) throw Error(ErrorCode::limit, "CUDA device", "more than 64 devices");
  const auto slot = static_cast<size_t>(index);
  std::call_once(asked[slot], [&] { known[slot] = use_device(index); });
  return known[slot];
}

void detail::launch(std::string_view name, const void* kernel, const LaunchShape& shape,
                    Stream stream, void** parameters) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        name);
  if (shape.shared > 0) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared)),
          name);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared;
  config.stream = stream;
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {shape.cluster, 1, 1};
  config.attrs = attributes;
  config.numAttrs = current_device().major < 9 ? 0 : shape.cluster > 1 ? 2 : 1;
  if (shape.cooperative) {
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    config.numAttrs = 2;
  }
  check(cudaLaunchKernelExC(&config, kernel, parameters), name);
}

}  // namespace walsh::cuda
