// Runs a text through a model layer by layer and measures what its linear layers read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/thread_pool.h"
#include "model/cpu/executor.h"
#include "model/model.h"
#include "quantize/checkpoint_source.h"
#include "quantize/input_statistics.h"

namespace walsh {

// The moments of one layer at a time, found with the original weights: errors of quantized layers
// before it do not enter, so every layer can be encoded by itself. Memory: the residual stream of
// all tokens (4 bytes each times hidden) and the moments of one layer.
class LayerStatistics : public InputStatistics {
 public:
  // Runs the checkpoint in `folder` on `windows` of tokens, each a sequence of its own. `pool`
  // outlives this object. `check` is called after each window and may throw to stop. Throws as
  // Model::load; usage for no token at all or one outside the vocabulary, limit for lack of memory.
  LayerStatistics(const std::string& folder, std::vector<std::vector<int32_t>> windows,
                  ThreadPool& pool, std::function<void()> check = {});

  const InputMoments& moments(int site) override;

 private:
  void check_tokens() const;
  void restart();
  // Runs the next layer, or after the last one the norm before the head.
  void advance();
  void run_layer(int64_t layer);
  void run_head();
  // Calls steps() for the pieces of all windows; their residual stream is in the executor then.
  void for_pieces(const std::function<void(int64_t rows)>& steps, bool first);
  void add(const Input& input, const float* rows, int64_t stride, int64_t m);
  void release_layer(int64_t layer);

  CheckpointSource source_;
  std::vector<std::vector<int32_t>> windows_;
  ThreadPool& pool_;
  std::function<void()> check_;
  Model model_;
  std::unique_ptr<CpuExecutor> executor_;
  AlignedArray<float> hidden_;  // [all tokens][hidden], before layer_ + 1
  int64_t layer_ = -1;          // whose moments are known; the number of layers: the head's
  struct Measured {
    const Input* input;
    InputMoments moments;
  };
  std::vector<Measured> measured_;  // of a layer in the order of make_plan
};

}  // namespace walsh
