#include "model/cuda/cuda_model.h"

#include "base/cuda/device.h"

namespace walsh {
namespace {

[[noreturn]] void refuse(const Device& device) {
  throw Error(ErrorCode::usage, "device " + device.name(), cuda::unavailable_reason());
}

}  // namespace

std::unique_ptr<Placement> make_cuda_placement(const Device& device) {
  refuse(device);
}

std::unique_ptr<PartExecutor> make_cuda_executor(const Model& model, const KvPages&, int64_t) {
  refuse(model.device);
}

}  // namespace walsh
