// Runs a text through a model layer by layer and measures the inputs of its linear layers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/device.h"
#include "base/thread_pool.h"
#include "calibrate/measured_checkpoint.h"
#include "codec/feedback/input_statistics.h"

namespace walsh {

// Holds the second moments of one layer's inputs at a time, computed with the original weights:
// errors of quantized earlier layers do not enter, so every layer can be encoded independently.
// Memory is needed for the residual stream of all tokens and the moments of one layer. With a fold
// the moments are those of the folded model's inputs (measured_checkpoint.h).
class LayerStatistics : public InputStatistics {
 public:
  // Runs the checkpoint in `folder` on `windows` of tokens, each a sequence of its own. `pool` must
  // outlive this object. `check` is called after each window and may throw to stop. A GPU that
  // cannot run the model is not used, and note() says why. Throws as Model::load, usage for no
  // tokens, tokens outside the vocabulary or a model that cannot be folded, and limit for lack of
  // memory.
  LayerStatistics(const std::string& folder, std::vector<std::vector<int32_t>> windows,
                  ThreadPool& pool, std::function<void()> check = {},
                  const std::optional<Rotation>& fold = {}, const Device& device = {});

  const InputMoments& moments(int site) override;
  const InputMoments& expert_moments(int site, int expert) override;
  std::string note() const override { return note_; }

 private:
  std::pair<int64_t, size_t> place_of(int site) const;

  MeasuredCheckpoint checkpoint_;
  std::string note_;
  std::unique_ptr<LayerMeter> meter_;
  // This layer's moments are known; the number of layers stands for the head.
  int64_t layer_ = -1;
  // These are the inputs of a layer in the order of make_plan.
  std::vector<MeasuredInput> measured_;
  const InputMoments nothing_{0};  // an expert that no token reached gets it
};

}  // namespace walsh
