// Sequences being evaluated: what is in the cache of each, batches of any mix of them, and logits
// or chosen tokens for chosen ones.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "model/executor.h"
#include "model/kv_pages.h"
#include "model/model.h"
#include "model/state_snapshots.h"

namespace walsh {

// Tokens that go behind what a sequence has: a prompt, a part of one, or the next token.
struct SequenceTokens {
  int64_t sequence = 0;
  std::span<const int32_t> tokens;
  int64_t logits = 1;  // of so many of its last tokens the logits are wanted
  // The states of recurrent layers behind so many of the tokens are kept, if there is room for
  // snapshots; 0: none.
  int64_t snapshot = 0;
};

// Receives the logits of one token, its index in the tokens given and [vocab] values, valid during
// the call.
using LogitSink = FunctionRef<void(int64_t index, std::span<const float> logits)>;
// The same for token `index` of an item of a batch.
using BatchSink = FunctionRef<void(size_t item, int64_t index, std::span<const float> logits)>;

// Not for use by several threads at once; several sessions may share a model if they take turns
// (they share its thread pool). The same tokens give the same logits for any number of threads. On
// the CPU they do not depend on what else is in a batch, nor on how a text was cut into batches; on
// a GPU they do, by rounding, through the kernels that are chosen by the number of rows.
//
// Recurrent layers can go back only to positions whose states are kept: the beginning, and where
// SequenceTokens::snapshot asked for it. A batch that fails does; with coded caches, to the former.
class Session {
 public:
  // Allocates everything that batches need, but for kilobytes while keys and values are coded.
  // Sequence 0 is open. Throws limit with the numbers if the memory exceeds the limit; usage if
  // more positions are asked for than the model has.
  explicit Session(const Model& model, const SessionOptions& options = {});

  // Another sequence, without tokens. Throws limit if as many are open as there can be.
  int64_t open() { return pages_.open(); }
  // Where a sequence is after it was told to keep so many of its tokens: fewer, with recurrent
  // layers (see above).
  int64_t reachable(int64_t sequence, int64_t positions) const;
  // Another sequence that begins with the first reachable(positions) tokens of this one and shares
  // their memory. Coded caches give those of its positions that are stored already back as they are
  // stored (see truncate).
  int64_t fork(int64_t sequence, int64_t positions);
  void close(int64_t sequence);
  // Keeps the first reachable(positions) tokens of a sequence. Where keys and values are coded,
  // positions that would be fp16 behind the new end stay as they were stored.
  void truncate(int64_t positions, int64_t sequence = 0);
  // Every open sequence is empty again.
  void reset();

  int64_t position(int64_t sequence = 0) const { return pages_.length(sequence); }
  int64_t capacity() const { return pages_.shape().capacity; }    // of each sequence
  int64_t sequences() const { return pages_.shape().sequences; }  // that can be open
  // Of the memory for keys and values, in pages: free ones, and positions of one.
  const KvPages& pages() const { return pages_; }
  // Tokens that are evaluated at once; longer batches are cut.
  int64_t max_rows() const { return executor_->max_rows(); }
  int64_t max_prompts() const { return executor_->max_prompts(); }  // items of several tokens
  const Model& model() const { return model_; }
  // Whether truncate() can take back any number of tokens as if they had not been there.
  bool rewinds() const { return !recurrent_ && !model_.cache.coded(); }

  // Whether the memory for keys and values has room for these tokens.
  bool fits(std::span<const SequenceTokens> batch) const;
  // Evaluates any mix of tokens of different sequences and calls `sink` in the order of the items.
  // Throws usage for a token id outside the vocabulary or if a sequence would overflow, limit if
  // the memory for keys and values runs out; nothing is changed then.
  void evaluate(std::span<const SequenceTokens> batch, BatchSink sink);
  // One sequence; `sink` is called for each index >= first_logit (none if that is tokens.size()).
  void forward(std::span<const int32_t> tokens, LogitSink sink, int64_t first_logit = 0,
               int64_t sequence = 0);

  // Whether the device chooses tokens by itself: then logits stay there and the functions below
  // replace the ones above.
  bool can_sample() const { return executor_->can_sample(); }
  // Before the first token of a sequence is chosen: how, and the tokens that the repeat penalty
  // knows.
  void start_sampling(const SamplerOptions& options, std::span<const int32_t> history,
                      int64_t sequence = 0);
  // Evaluates as evaluate() does and chooses the token behind each item whose `logits` is not 0,
  // without waiting. An item without tokens goes on with the token that was chosen last for its
  // sequence, which need not have been taken yet: at most one more batch may be open. Several items
  // must fit into max_rows() and max_prompts().
  void submit(std::span<const SequenceTokens> batch);
  void submit(std::span<const int32_t> tokens, int64_t sequence = 0);
  // The items that were chosen for last, each one token on.
  void submit_chosen();
  // The tokens chosen by the oldest batch that was not taken, in the order of its items; waits for
  // them. Valid until the next call.
  std::span<const int32_t> take() { return executor_->sampled(); }

 private:
  class Batcher;

  void check(std::span<const SequenceTokens> batch, bool chosen) const;
  void reserve(std::span<const SequenceTokens> batch);
  // marks[i]: SequenceTokens::snapshot of run i.
  void run(std::span<const int32_t> tokens, std::span<const Run> runs,
           std::span<const int64_t> marks, bool samples);
  std::vector<StateMark> place_marks(std::span<const Run> runs, std::span<const int64_t> marks);

  const Model& model_;
  KvPages pages_;
  StateSnapshots snapshots_;
  const bool recurrent_;
  std::unique_ptr<Executor> executor_;
  std::vector<int64_t> chosen_;  // sequences of the items that were chosen for last
};

}  // namespace walsh
