// Takes all tokens of a text through a model layer by layer: the state between two layers can be
// kept, and matrices may change there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned.h"
#include "model/cpu/executor.h"
#include "model/model.h"

namespace walsh {

// Computes the layers of windows on the model's device. Streams take turns with it.
class LayerRunner {
 public:
  // `model` outlives the runner; `session` is what session_for() returns. Throws limit for lack of
  // memory.
  LayerRunner(const Model& model, const SessionOptions& session);

  const Model& model() const { return model_; }
  int64_t positions() const { return session_.max_positions; }
  int64_t sequences() const { return session_.sequences; }
  PartExecutor& executor() { return *executor_; }
  // Returns the executor of a model on the CPU, which can do more.
  CpuExecutor& on_cpu() { return *on_cpu_; }

 private:
  const Model& model_;
  SessionOptions session_;
  std::unique_ptr<KvPages> pages_;  // sequences on these pages are used for all windows
  std::unique_ptr<PartExecutor> executor_;
  CpuExecutor* on_cpu_ = nullptr;
};

// Holds the residual stream of a text between its layers. That takes 4 bytes times hidden for each
// token, and as much for every layer whose keys and values others attend to.
class LayerStream {
 public:
  // Each of the `windows` is a sequence of its own. `check` is called after each batch and may
  // throw to stop. Throws usage for no tokens, for tokens outside the vocabulary and for windows
  // that exceed the model's or the runner's positions, limit for lack of memory.
  LayerStream(std::shared_ptr<LayerRunner> runner, std::vector<std::vector<int32_t>> windows,
              std::function<void()> check = {});
  // This stream has a runner of its own. `model` outlives it.
  LayerStream(const Model& model, std::vector<std::vector<int32_t>> windows,
              std::function<void()> check = {});

  // Holds the state between two layers.
  struct State {
    int64_t next = 0;  // this layer comes next
    AlignedArray<float> stream;
    std::map<int, AlignedArray<float>> kept;
  };

  const std::vector<std::vector<int32_t>>& windows() const { return windows_; }
  CpuExecutor& executor() { return runner_->on_cpu(); }
  int64_t vocab() const { return runner_->model().config.vocab; }
  uint64_t bytes() const;

  // Returns to the state before the first layer.
  void restart();
  void run_layer();  // it runs the next one
  // Runs all layers up to this one. A GPU computes them without a break; it does not know layers
  // that attend to keys and values of others.
  void run_to(int64_t layer);
  // Calls body(rows) for the batches of all windows, with their residual stream in the executor.
  void for_batches(const std::function<void(int64_t rows)>& body);
  // Calls sink(token, logits) for each token, several at once, after the last layer.
  void run_head(const std::function<void(int64_t token, std::span<const float> logits)>& sink);

  State save() const;
  void restore(const State& state);

 private:
  // Does the same. If the layers attend to keys and values of an earlier one (`cache`, else -1),
  // these are stored first.
  void for_batches(const std::function<void(int64_t rows, int64_t first)>& body, bool first,
                   int cache);
  void put_stream(const float* from, int64_t rows);
  void store_cache(int layer, int64_t first_token, int64_t rows);

  std::shared_ptr<LayerRunner> runner_;
  std::vector<std::vector<int32_t>> windows_;
  std::function<void()> check_;
  // The residual stream has the shape [all tokens][hidden]. The state also keeps the input of every
  // layer whose keys and values others attend to: these are made again for each window, because the
  // cache holds only one window.
  State state_;
};

}  // namespace walsh
