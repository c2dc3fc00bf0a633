#include "calibrate/measured_checkpoint.h"

#include <algorithm>

#include "weights/open.h"

namespace walsh {

MeasuredCheckpoint::MeasuredCheckpoint(const std::string& folder, ThreadPool& pool,
                                       const std::optional<Rotation>& fold)
    : source_(CheckpointSource::open(folder)),
      pool_(pool),
      config_(read_config(source_)),
      plan_(make_plan(config_)) {
  if (!fold) return;
  plan_ = folded_plan(std::move(plan_), folder);
  fold_ = std::make_unique<ResidualFold>(plan_, *fold, source_, pool_);
}

std::function<void(float*)> MeasuredCheckpoint::rotation(int64_t layer, size_t input) const {
  if (!fold_) return {};
  if (layer == layers()) return fold_->input_rotation(plan_.head, width(layer, input));
  const std::vector<MatrixDesc>& matrices = config_.layers[static_cast<size_t>(layer)].matrices;
  const auto reader = std::find_if(matrices.begin(), matrices.end(), [&](const MatrixDesc& m) {
    return static_cast<size_t>(m.input) == input;
  });
  return fold_->input_rotation(reader->weight, width(layer, input));
}

int64_t MeasuredCheckpoint::width(int64_t layer, size_t input) const {
  if (layer == layers()) return config_.hidden;
  return config_.layers[static_cast<size_t>(layer)].activations[input].width;
}

size_t MeasuredCheckpoint::inputs(int64_t layer) const {
  return layer == layers() ? 1 : config_.layers[static_cast<size_t>(layer)].activations.size();
}

void MeasuredCheckpoint::release(int64_t layer) {
  for (const MatrixDesc& m : config_.layers[static_cast<size_t>(layer)].matrices)
    source_.release(m.weight);
}

}  // namespace walsh
