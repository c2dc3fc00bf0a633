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

std::unique_ptr<MeteringExecutor> make_cuda_executor(const Model& model, const KvPages&, int64_t) {
  refuse(model.device);
}

uint64_t cuda_model_bytes(const WeightSource&, const ModelConfig&, const LoadOptions& options,
                          uint64_t) {
  refuse(options.device);
}

uint64_t cuda_meter_bytes(const ModelConfig&, int64_t) {
  return 0;
}

std::string why_no_cuda_meter() {
  return cuda::unavailable_reason();
}

}  // namespace walsh
