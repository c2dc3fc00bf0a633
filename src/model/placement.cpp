#include "model/placement.h"

#include "model/cpu/executor.h"
#include "model/cuda/cuda_model.h"
#include "model/split_executor.h"

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
      linear.passes.push_back(std::make_shared<const PanelMatrix>(pack_panels(stored, pass)));
  }
};

std::unique_ptr<PartExecutor> make_part_executor(const Model& model, const KvPages& pages,
                                                 const SessionOptions& options) {
  if (model.device.cuda) return make_cuda_executor(model, pages, options.kept_states());
  return std::make_unique<CpuExecutor>(model, pages, options.max_bytes, options.kept_states());
}

}  // namespace

std::unique_ptr<Placement> make_placement(const Device& device) {
  if (device.cuda) return make_cuda_placement(device);
  return std::make_unique<CpuPlacement>();
}

std::unique_ptr<Executor> make_executor(const Model& model, const KvPages& pages,
                                        const SessionOptions& options) {
  if (model.parts.empty()) return make_part_executor(model, pages, options);
  return std::make_unique<SplitExecutor>(
      model, SplitExecutor::Parts{make_part_executor(model.parts[0], pages, options),
                                  make_part_executor(model.parts[1], pages, options)});
}

}  // namespace walsh
