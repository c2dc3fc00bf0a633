// Holds the checkpoint that a calibration text runs through, and declares the interface of the
// classes that measure it layer by layer.
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
  // checkpoint's weights; both models compute the same function. `pool` outlives this object.
  // Throws usage for a model that cannot be folded.
  MeasuredCheckpoint(const std::string& folder, ThreadPool& pool,
                     const std::optional<Rotation>& fold);

  CheckpointSource& source() { return source_; }
  const ModelConfig& config() const { return config_; }
  ThreadPool& pool() const { return pool_; }
  int64_t layers() const { return static_cast<int64_t>(config_.layers.size()); }
  bool folded() const { return fold_ != nullptr; }
  // Returns a function that rotates an input of a layer, or of the head (after the last layer),
  // into the basis of the folded model. If a norm stands in front, the function takes its output
  // without the gain. It is empty if the input stays as it is.
  std::function<void(float*)> rotation(int64_t layer, size_t input) const;
  // Returns how many values an input has.
  int64_t width(int64_t layer, size_t input) const;
  size_t inputs(int64_t layer) const;
  // Releases the layer's weights, which are not needed again soon.
  void release(int64_t layer);

 private:
  CheckpointSource source_;
  ThreadPool& pool_;
  ModelConfig config_;
  ModelPlan plan_;
  std::unique_ptr<ResidualFold> fold_;  // null means that nothing is folded
};

// Holds the moments of one input of a layer, for all tokens and for each expert that reads it.
struct MeasuredInput {
  InputMoments moments;
  std::vector<std::optional<InputMoments>> experts = {};
};

// Runs a text through the layers of a checkpoint, one after the other.
class LayerMeter {
 public:
  virtual ~LayerMeter() = default;

  // Returns to the state before the first layer.
  virtual void restart() = 0;
  // Runs the next layer, or, after the last one, the norm in front of the head, and returns its
  // inputs in the order of make_plan.
  virtual std::vector<MeasuredInput> run(int64_t layer) = 0;
};

}  // namespace walsh
