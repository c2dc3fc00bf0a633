// A text on its way through a model, all of its tokens layer by layer: what is between layers can
// be kept, and matrices may change while it is there.
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

// Memory: the residual stream of all tokens, 4 bytes times hidden each, and as much for every layer
// whose keys and values others attend to.
class LayerStream {
 public:
  // `windows`: each a sequence of its own. `model`, on the CPU, outlives the stream. `check` is
  // called after each window and may throw to stop. Throws usage for no tokens, for tokens outside
  // the vocabulary and for windows that exceed the model's positions, limit for lack of memory.
  LayerStream(const Model& model, std::vector<std::vector<int32_t>> windows,
              std::function<void()> check = {});

  // What run_layer() leaves behind a layer.
  struct State {
    int64_t next = 0;  // the layer that comes next
    AlignedArray<float> stream;
    std::map<int, AlignedArray<float>> kept;
  };

  const std::vector<std::vector<int32_t>>& windows() const { return windows_; }
  CpuExecutor& executor() { return *executor_; }
  int64_t next_layer() const { return state_.next; }
  int64_t vocab() const { return model_.config.vocab; }
  uint64_t bytes() const;

  // The text stands before the first layer again.
  void restart();
  void run_layer();  // the next one
  // Calls body(rows) for the pieces of all windows, with their residual stream in the executor.
  void for_pieces(const std::function<void(int64_t rows)>& body);
  // Calls sink(token, logits) for each token, several at once, behind the last layer.
  void run_head(const std::function<void(int64_t token, std::span<const float> logits)>& sink);

  State save() const;
  void restore(const State& state);

 private:
  // If the layers attend to keys and values of an earlier one (`cache`, else -1), that stores them
  // first.
  void for_pieces(const std::function<void(int64_t rows, int64_t first)>& body, bool first,
                  int cache, int64_t logits);
  void put_stream(const float* from, int64_t rows);
  void store_cache(int layer, int64_t first_token, int64_t rows);

  const Model& model_;
  std::vector<std::vector<int32_t>> windows_;
  std::function<void()> check_;
  std::unique_ptr<KvPages> pages_;  // of one sequence, used for every window
  std::unique_ptr<CpuExecutor> executor_;
  // The stream is [all tokens][hidden]. Kept is the input of every layer whose keys and values
  // others attend to: these are made again for each window, because the cache holds one only.
  State state_;
};

}  // namespace walsh
