#include "model/placement.h"

#include "model/cpu/executor.h"
#include "model/cuda/cuda_model.h"

namespace walsh {
namespace {

class CpuPlacement : public Placement {
 public:
  void place(Linear& linear, Tensor stored, const MatrixDesc&) override {
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
  if (model.device.cuda) return make_cuda_executor(model, pages, options.snapshots);
  return std::make_unique<CpuExecutor>(model, pages, options.max_bytes, options.snapshots);
}

}  // namespace walsh
