// These stubs are for a build without CUDA, which cannot make a DeviceLoader.
#include "api/device_loader.h"

#include "base/no_cuda/unavailable.h"

namespace walsh {

struct DeviceLoader::Impl {};

DeviceLoader& DeviceLoader::of(int) {
  cuda::unavailable();
}

DeviceLoader::~DeviceLoader() = default;

Tensor DeviceLoader::encode(const LayerForm&, const MatrixView&, const EncodeOptions&, ThreadPool&,
                            cuda::Stream, double*) {
  cuda::unavailable();
}

}  // namespace walsh
