// Evaluates sequences: holds the contents of their caches, takes batches of any mix of them, and
// gives logits or sampled tokens.
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

// These tokens are appended to a sequence: a prompt, a part of one, or the next token.
struct SequenceTokens {
  int64_t sequence = 0;
  std::span<const int32_t> tokens;
  int64_t logits = 1;  // The logits of so many last tokens are wanted.
  // After this many of the tokens the states of recurrent layers are kept, if there is room for
  // snapshots; 0: not at all.
  int64_t snapshot = 0;
  // So many of its last tokens may be wrong: truncate() can take them back one by one, also where
  // layers are recurrent. At most Session::revocable().
  int64_t revocable = 0;
  // A model that joins (Model::joins) gets a stream for each of the tokens, [tokens][hidden].
  std::span<const float> streams = {};
  int64_t read = 0;  // number of its last tokens whose streams are wanted
  // All images of the sequence, in their order. Those in front of the tokens have an effect on
  // where a rope with three axes has these (axis_positions), those behind them have none.
  std::span<const ImageRows> images = {};
};

// Receives the logits of one token: its index among the tokens given, and [vocab] values that are
// valid during the call.
using LogitSink = FunctionRef<void(int64_t index, std::span<const float> logits)>;
// Receives the logits of token `index` of item `item` of a batch.
using BatchSink = FunctionRef<void(size_t item, int64_t index, std::span<const float> logits)>;
// Receives in the same way the outputs of the layers for a token, [hidden], in front of the final
// norm.
using StreamSink = BatchSink;

// A session must not be used by several threads at once. Several sessions may share a model if they
// take turns (they share its thread pool). The same tokens give the same logits for any number of
// threads. On the CPU, logits do not depend on what else is in a batch, nor on how a text was cut
// into batches. On a GPU they do, by rounding errors, because the number of rows selects the
// kernels.
//
// Recurrent layers can return only to positions whose states are kept: the beginning, and the
// positions that SequenceTokens::snapshot and, for a while, SequenceTokens::revocable asked for. If
// a batch fails, its sequences return to such a position; with coded caches, to the beginning.
class Session {
 public:
  // Allocates everything that batches need, except for some kilobytes while keys and values are
  // coded. Sequence 0 is open. Throws limit, with the numbers, if the memory exceeds the limit, and
  // usage if more positions are asked for than the model has.
  explicit Session(const Model& model, const SessionOptions& options = {});

  // Opens another sequence, without tokens. Throws limit if the most sequences are open already.
  int64_t open() { return pages_.open(); }
  // Returns the length that a sequence has after truncate() to this many tokens. With recurrent
  // layers it can be shorter (see above).
  int64_t reachable(int64_t sequence, int64_t positions) const;
  // Opens another sequence that begins with the first reachable(positions) tokens of this one and
  // shares their memory. If caches are coded, those positions that are stored already are read as
  // they are stored (see truncate).
  int64_t fork(int64_t sequence, int64_t positions);
  void close(int64_t sequence);
  // Keeps the first reachable(positions) tokens of a sequence. With coded caches, positions that
  // are stored already stay so, even if they would be fp16 at this distance from the new end.
  void truncate(int64_t positions, int64_t sequence = 0);
  // Empties all open sequences.
  void reset();

  // Returns whether sequences can be saved and restored: on the CPU.
  bool saves() const { return executor_->has_memory(); }
  // Returns everything that a sequence holds: keys, values and states, of recurrent layers also the
  // latest snapshots (session_memory.cpp).
  std::vector<std::byte> save(int64_t sequence);
  // Opens a sequence of `positions` tokens with what was saved of one in a session of the same
  // model and the same options; `read` fills parts of memory with the saved bytes, one after the
  // other. Throws what open(), evaluate() and `read` throw, and bad_input for what cannot have been
  // saved.
  int64_t restore(int64_t positions, MemoryVisitor read);

  int64_t position(int64_t sequence = 0) const { return pages_.length(sequence); }
  int64_t capacity() const { return pages_.shape().capacity; }    // of each sequence
  int64_t sequences() const { return pages_.shape().sequences; }  // the most that can be open
  // Returns the pages of the KV cache: how many are free, and how many positions each has.
  const KvPages& pages() const { return pages_; }
  // Returns the most tokens that are evaluated at once; longer batches are split.
  int64_t max_rows() const { return executor_->max_rows(); }
  // Returns the most items of several tokens.
  int64_t max_prompts() const { return executor_->max_prompts(); }
  const Model& model() const { return model_; }
  // Returns whether truncate() can remove any number of tokens without leaving a trace.
  bool rewinds() const { return !recurrent_ && !model_.cache.coded(); }
  // Returns the most tokens after the next one of a sequence that truncate() can remove without
  // leaving a trace, if they are evaluated together with it and SequenceTokens::revocable counts
  // them.
  int64_t revocable(int64_t sequence) const;

  // Returns whether the KV cache has room for these tokens.
  bool fits(std::span<const SequenceTokens> batch) const;
  // Evaluates any mix of tokens of different sequences, and calls `sink` in the order of the items.
  // Throws usage for a token id outside the vocabulary or if a sequence would overflow, and limit
  // if the KV cache is full; then nothing has changed.
  void evaluate(std::span<const SequenceTokens> batch, BatchSink sink);
  // Also calls `streams` where streams are wanted, for a token before `sink` gets its logits. Only
  // a device that has_streams() can do this.
  void evaluate(std::span<const SequenceTokens> batch, BatchSink sink, StreamSink streams);
  bool has_streams() const { return executor_->has_streams(); }
  bool takes_images() const { return executor_->takes_images(); }
  // Throws usage for images of a sequence that the device cannot take, whatever tokens are there.
  void check_images(std::span<const ImageRows> images) const;
  // Evaluates one sequence. `sink` is called for each index >= first_logit; if that is
  // tokens.size(), never.
  void forward(std::span<const int32_t> tokens, LogitSink sink, int64_t first_logit = 0,
               int64_t sequence = 0);

  // Returns whether the device samples tokens itself. If so, logits stay on the device, and the
  // functions below replace the ones above.
  bool can_sample() const { return executor_->can_sample(); }
  // Called before the first token of a sequence is sampled: sets the options, and the tokens that
  // the repeat penalty takes into account.
  void start_sampling(const SamplerOptions& options, std::span<const int32_t> history,
                      int64_t sequence = 0);
  // Evaluates the batch as evaluate() does, and samples the token after each item whose `logits` is
  // not 0, without waiting. An item without tokens continues with the token that was last sampled
  // for its sequence, which the caller need not have taken yet: one more batch may be open, at
  // most. If there are several items, they must fit into max_rows() and max_prompts().
  void submit(std::span<const SequenceTokens> batch);
  // Waits for the oldest batch that was not taken, and returns its sampled tokens in the order of
  // its items. They are valid until the next call.
  std::span<const int32_t> take() { return executor_->sampled(); }

 private:
  class Batcher;

  // States of recurrent layers are kept after row `snapshot` of a run (SequenceTokens::snapshot),
  // and in front of every row from `revocable` on, since these may be taken back.
  struct KeptStates {
    int64_t snapshot, revocable;
  };

  void visit(int64_t sequence, int64_t positions, bool restores, MemoryVisitor visit);
  void visit_states(int64_t sequence, int64_t positions, bool restores, MemoryVisitor visit);
  StateSnapshots::Snapshot state_before(int64_t sequence, int64_t position) const;
  void drop_states(int64_t sequence, int64_t position);
  void check(std::span<const SequenceTokens> batch, bool chosen) const;
  void check_streams(std::span<const SequenceTokens> batch) const;
  void check_shape(const ImageRows& image) const;
  void check_images(const SequenceTokens& item) const;
  void reserve(std::span<const SequenceTokens> batch);
  // kept[i] is for run i; the marks of `batch` follow from it.
  void run(Batch batch, std::span<const KeptStates> kept);
  std::vector<StateMark> place_marks(std::span<const Run> runs, std::span<const KeptStates> kept);

  const Model& model_;
  KvPages pages_;
  StateSnapshots snapshots_, recent_;  // `recent_` has those of tokens that may be wrong.
  const int64_t revocable_;            // SessionOptions
  const bool recurrent_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace walsh
