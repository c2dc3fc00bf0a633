// The checkpoint that a calibration text is run through, and what measures it layer by layer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/config.h"
#include "arch/plan.h"
#include "base/thread_pool.h"
#include "codec/feedback/input_statistics.h"
#include "quantize/source/fold.h"
#include "weights/checkpoint_source.h"

namespace walsh {

class MeasuredCheckpoint {
 public:
  // With a fold (quantize/source/fold.h) inputs are those of the folded model, computed with the
  // checkpoint's weights; both are the same function. `pool` outlives this object. Throws usage for
  // a model that cannot be folded.
  MeasuredCheckpoint(const std::string& folder, ThreadPool& pool,
                     const std::optional<Rotation>& fold);

  CheckpointSource& source() { return source_; }
  const ModelConfig& config() const { return config_; }
  ThreadPool& pool() const { return pool_; }
  int64_t layers() const { return static_cast<int64_t>(config_.layers.size()); }
  bool folded() const { return fold_ != nullptr; }
  // What takes an input of a layer, or of the head, which is behind the last layer, to the basis of
  // the folded model, after a norm without its gain if there is one. Empty: it is as it is.
  std::function<void(float*)> rotation(int64_t layer, size_t input) const;
  // The values of an input.
  int64_t width(int64_t layer, size_t input) const;
  size_t inputs(int64_t layer) const;
  // The layer's weights are not needed again soon.
  void release(int64_t layer);

 private:
  CheckpointSource source_;
  ThreadPool& pool_;
  ModelConfig config_;
  ModelPlan plan_;
  std::unique_ptr<ResidualFold> fold_;  // null: none
};

// An input of a layer, and of the experts that read it.
struct MeasuredInput {
  InputMoments moments;
  std::vector<std::optional<InputMoments>> experts = {};
};

// Runs a text through the layers of a checkpoint, one after the other.
class LayerMeter {
 public:
  virtual ~LayerMeter() = default;

  // The text stands before the first layer again.
  virtual void restart() = 0;
  // Runs the next layer, or behind the last one the norm in front of the head, and returns its
  // inputs in the order of make_plan.
  virtual std::vector<MeasuredInput> run(int64_t layer) = 0;
};

}  // namespace walsh
