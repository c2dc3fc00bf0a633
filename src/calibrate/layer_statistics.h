// Runs a text through a model layer by layer and measures what its linear layers read.
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
#include "model/cpu/executor.h"
#include "model/model.h"
#include "quantize/feedback/input_statistics.h"
#include "quantize/source/checkpoint_source.h"
#include "quantize/source/fold.h"

namespace walsh {

// The moments of one layer at a time, found with the original weights: errors of quantized layers
// before it do not enter, so every layer can be encoded by itself. Memory: the residual stream of
// all tokens (4 bytes each times hidden) and the moments of one layer. With a fold
// (quantize/source/fold.h) the moments are those of the folded model's inputs, found with the
// checkpoint's weights: the two are the same function.
class LayerStatistics : public InputStatistics {
 public:
  // Runs the checkpoint in `folder` on `windows` of tokens, each a sequence of its own. `pool`
  // outlives this object. `check` is called after each window and may throw to stop. Throws as
  // Model::load; usage for no token at all, one outside the vocabulary or a model that cannot be
  // folded, limit for lack of memory.
  LayerStatistics(const std::string& folder, std::vector<std::vector<int32_t>> windows,
                  ThreadPool& pool, std::function<void()> check = {},
                  const std::optional<Rotation>& fold = {});

  const InputMoments& moments(int site) override;
  const InputMoments& expert_moments(int site, int expert) override;

 private:
  void check_tokens() const;
  std::pair<int64_t, size_t> place_of(int site) const;
  void restart();
  // Runs the next layer, or after the last one the norm before the head.
  void advance();
  void run_layer(int64_t layer);
  void run_head();
  // Calls steps() for the pieces of all windows; their residual stream is in the executor then.
  void for_pieces(const std::function<void(int64_t rows)>& steps, bool first);
  // Begins to measure an input [width] that `matrix` reads, alone or among others.
  void measure(const Input& input, int64_t width, const std::string& matrix);
  void add(const Input& input, const CpuExecutor::InputRows& rows);

  CheckpointSource source_;
  std::vector<std::vector<int32_t>> windows_;
  ThreadPool& pool_;
  std::function<void()> check_;
  Model model_;
  ModelPlan plan_;
  std::unique_ptr<ResidualFold> fold_;  // null: none
  std::unique_ptr<KvPages> pages_;      // one sequence, which every window is
  std::unique_ptr<CpuExecutor> executor_;
  AlignedArray<float> hidden_;  // [all tokens][hidden], before layer_ + 1
  int64_t layer_ = -1;          // whose moments are known; the number of layers: the head's
  struct Measured {
    const Input* input;
    InputMoments moments;
    std::function<void(float*)> rotate;  // into the basis of the folded model; may be empty
    std::vector<std::optional<InputMoments>> experts = {};  // of those that read it
  };
  // What the folded model reads in place of `rows`: [m][width] in folded_rows_.
  void fold(const Measured& measured, const CpuExecutor::InputRows& rows);

  std::vector<Measured> measured_;   // of a layer in the order of make_plan
  AlignedArray<float> folded_rows_;  // of one batch
  std::vector<float> no_gain_;       // ones, [hidden]
  const InputMoments nothing_{0};    // of an expert that no token reached
};

}  // namespace walsh
