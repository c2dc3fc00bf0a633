// Runs a text through a model layer by layer and measures the inputs of its linear layers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned.h"
#include "base/thread_pool.h"
#include "calibrate/layer_stream.h"
#include "codec/feedback/input_statistics.h"
#include "model/model.h"
#include "quantize/source/fold.h"
#include "weights/checkpoint_source.h"

namespace walsh {

// Has the second moments of one layer's inputs at a time, computed with the original weights:
// errors of quantized earlier layers do not enter, so every layer can be encoded independently.
// Memory: that of a LayerStream and the moments of one layer. With a fold (quantize/source/fold.h)
// the moments are those of the folded model's inputs, computed with the checkpoint's weights; both
// are the same function.
class LayerStatistics : public InputStatistics {
 public:
  // Runs the checkpoint in `folder` on `windows` of tokens, each a sequence of its own. `pool` must
  // outlive this object. `check` is called after each window and may throw to stop. Throws as
  // Model::load; usage for no tokens, tokens outside the vocabulary or a model that cannot be
  // folded, limit for lack of memory.
  LayerStatistics(const std::string& folder, std::vector<std::vector<int32_t>> windows,
                  ThreadPool& pool, std::function<void()> check = {},
                  const std::optional<Rotation>& fold = {});

  const InputMoments& moments(int site) override;
  const InputMoments& expert_moments(int site, int expert) override;

 private:
  std::pair<int64_t, size_t> place_of(int site) const;
  void restart();
  // Runs the next layer, or after the last one the norm in front of the head.
  void advance();
  void run_layer(int64_t layer);
  void run_head();
  // Starts to measure an input [width], which `matrix` (and perhaps others) read.
  void measure(const Input& input, int64_t width, const std::string& matrix);
  void add(const Input& input, const CpuExecutor::InputRows& rows);

  CheckpointSource source_;
  ThreadPool& pool_;
  Model model_;
  ModelPlan plan_;
  std::unique_ptr<ResidualFold> fold_;  // null: none
  LayerStream stream_;                  // behind layer_
  // the layer whose moments are known; the number of layers stands for the head
  int64_t layer_ = -1;
  struct Measured {
    const Input* input;
    InputMoments moments;
    std::function<void(float*)> rotate;  // into the basis of the folded model; may be empty
    std::vector<std::optional<InputMoments>> experts = {};  // of the experts that read it
  };
  // Writes what the folded model reads in place of `rows`, [m][width], to folded_rows_.
  void fold(const Measured& measured, const CpuExecutor::InputRows& rows);

  std::vector<Measured> measured_;   // of a layer, in the order of make_plan
  AlignedArray<float> folded_rows_;  // of one batch
  std::vector<float> no_gain_;       // ones, [hidden]
  const InputMoments nothing_{0};    // for an expert that no token reached
};

}  // namespace walsh
