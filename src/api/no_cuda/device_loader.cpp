// Stubs for a build without CUDA, which cannot make a DeviceLoader.
#include "api/device_loader.h"

#include "walsh/error.h"

namespace walsh {
namespace {

[[noreturn]] void unavailable() {
  throw Error(ErrorCode::usage, "CUDA", cuda::unavailable_reason());
}

}  // namespace

struct DeviceLoader::Impl {};

DeviceLoader& DeviceLoader::of(int) {
  unavailable();
}

DeviceLoader::~DeviceLoader() = default;

Tensor DeviceLoader::encode(const LayerForm&, const MatrixView&, const EncodeOptions&, ThreadPool&,
                            cuda::Stream, double*) {
  unavailable();
}

}  // namespace walsh
