// Sequences being evaluated: positions and chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "model/executor.h"
#include "model/model.h"

namespace walsh {

// Receives the logits of one token: its index in the tokens given and [vocab] values, valid during
// the call.
using LogitSink = FunctionRef<void(int64_t index, std::span<const float> logits)>;

// Not for use by several threads at once; several sessions may share a model if they take turns
// (they share its thread pool). The same tokens give the same logits for any number of threads.
class Session {
 public:
  // Allocates everything that forward() needs, but for kilobytes while keys and values are coded.
  // Throws limit with the numbers if the memory exceeds the limit; usage if more positions are
  // asked for than the model has.
  explicit Session(const Model& model, const SessionOptions& options = {});

  // Evaluates `tokens` after what is in the cache of `sequence` and calls `sink` in order for each
  // index >= first_logit (none if that is tokens.size()). Throws usage for a token id outside the
  // vocabulary or if the cache would overflow; the cache is then unchanged.
  void forward(std::span<const int32_t> tokens, LogitSink sink, int64_t first_logit = 0,
               int64_t sequence = 0);
  // One more token for each of the first tokens.size() sequences, together. Throws as forward().
  void decode(std::span<const int32_t> tokens, LogitSink sink);

  // Whether the device chooses tokens by itself: then logits stay there and the functions below
  // replace the ones above. start_sampling comes first, with the tokens that the repeat penalty
  // knows.
  bool can_sample() const { return executor_->can_sample(); }
  void start_sampling(const SamplerOptions& options, std::span<const int32_t> history,
                      int64_t sequence = 0);
  // Evaluates tokens as forward() does and chooses the one that follows the last, without waiting.
  void submit(std::span<const int32_t> tokens, int64_t sequence = 0);
  // The same for one token of each of the first tokens.size() sequences.
  void submit_decode(std::span<const int32_t> tokens);
  // The same for the tokens chosen last, which need not have been taken yet: at most one more batch
  // may be open. Throws usage if the cache would overflow.
  void submit_chosen();
  // The tokens chosen by the oldest batch that was not taken, one per sequence; waits for them.
  // Valid until the next call.
  std::span<const int32_t> take();

  void reset();  // all sequences
  // Keeps the first `positions` tokens of a sequence.
  void truncate(int64_t positions, int64_t sequence = 0);
  int64_t position(int64_t sequence = 0) const;
  int64_t capacity() const { return capacity_; }  // of each sequence
  int64_t sequences() const { return static_cast<int64_t>(positions_.size()); }
  const Model& model() const { return model_; }

 private:
  void check(std::span<const int32_t> tokens, int64_t more, int64_t sequence) const;
  void batch(std::span<const int32_t> tokens, std::span<const Run> runs, LogitSink sink,
             int64_t first_index, int64_t first_logit);
  void check_decode(std::span<const int32_t> tokens) const;
  void place_decode(int64_t begin, int64_t count);

  const Model& model_;
  int64_t capacity_;
  std::unique_ptr<Executor> executor_;
  std::vector<int64_t> positions_;  // per sequence
  std::vector<Run> runs_;
  int64_t chosen_runs_ = 0;  // of the batch that chose last: runs_[0..chosen_runs_)
};

}  // namespace walsh
