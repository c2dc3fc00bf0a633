#include "model/placement.h"

#include "model/cpu/executor.h"
#include "model/cuda/cuda_model.h"

namespace walsh {
namespace {

class CpuPlacement : public Placement {
 public:
  void check(ActivationMode activations) const override {
    if (activations != ActivationMode::f16) return;
    throw Error(ErrorCode::usage, "device cpu",
                "activations f16 exist on the GPU only: use auto, i8, i8x2, f32 or lut");
  }

  void place(Linear& linear, Tensor stored) override {
    if (stored.format->dense) {
      linear.dense = std::move(stored);
      return;
    }
    for (int pass = 0; pass < stored.format->passes; ++pass)
      linear.passes.push_back(pack_panels(stored, pass));
  }
};

}  // namespace

std::unique_ptr<Placement> make_placement(const Device& device) {
  if (device.cuda) return make_cuda_placement(device);
  return std::make_unique<CpuPlacement>();
}

std::unique_ptr<Executor> make_executor(const Model& model, const KvPages& pages,
                                        const SessionOptions& options) {
  if (model.device.cuda) return make_cuda_executor(model, pages);
  return std::make_unique<CpuExecutor>(model, pages, options.max_bytes);
}

}  // namespace walsh
