// An executor evaluates batches of tokens on a device by a model's steps (model/steps.h).
// Sequences, chunks and positions are the business of Session, which knows no device.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "base/function_ref.h"
#include "base/memory_visitor.h"
#include "kernels/sampler_options.h"
#include "model/image_rows.h"
#include "model/kv_pages.h"
#include "model/model.h"

namespace walsh {

// A run is consecutive tokens of one sequence within a batch.
struct Run {
  int64_t sequence = 0;
  int64_t position = 0;  // Its first token has this position.
  int64_t rows = 0;
  int64_t logits = 0;  // The logits of so many last rows are wanted.

  bool operator==(const Run&) const = default;
};

// Behind the first `rows` rows of a batch's run the states of its recurrent layers are copied to a
// slot (state_snapshots.h).
struct StateMark {
  size_t run = 0;
  int64_t rows = 0;
  int32_t slot = 0;
};

// This stands for the token that the device chose last for the sequence.
inline constexpr int32_t kChosenToken = -1;

// A batch is the rows of `runs`, one run after the other, whose tokens are `tokens`; every run is
// of another sequence. Single rows are evaluated together where they are neighbours.
struct Batch {
  std::span<const int32_t> tokens;
  std::span<const Run> runs;
  bool samples = false;  // If true, a token is chosen after every row whose logits are wanted.
  std::span<const StateMark> marks = {};
  // A model that joins gets a stream for every token, [rows][hidden].
  std::span<const float> streams = {};
  // The outputs of the layers are read for the rows from this one on (Executor::read_streams).
  int64_t first_read = std::numeric_limits<int64_t>::max();
  // These rows are read instead of the embeddings of their tokens (Executor::takes_images).
  std::span<const PlacedRows> images = {};
  // Says where a rope with three axes has each row; empty: at its position on all axes.
  std::span<const AxisPositions> axes = {};
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual int64_t max_rows() const = 0;  // A batch has at most this many tokens.
  // Returns how many runs of several rows a batch may have.
  virtual int64_t max_prompts() const { return max_rows(); }
  // A call of logits() may ask for this many rows.
  virtual int64_t logit_rows() const = 0;

  // Evaluates a batch, for which the pages of its sequences are reserved. The logits of the rows
  // whose logits are wanted are computed, in their order, as many as logits() takes at once.
  virtual void run(const Batch& batch) = 0;
  // Computes the logits of `rows` <= logit_rows() of the wanted rows of the last batch, from the
  // `first` one on.
  virtual void logits(int64_t first, int64_t rows) = 0;
  // Returns the logits of row `index` of the last logits(), [vocab] in host memory; waits until
  // they are there.
  virtual std::span<const float> logit_row(int64_t index) = 0;

  virtual bool takes_images() const { return false; }
  // Returns whether the outputs of the layers can be read, by the function below.
  virtual bool has_streams() const { return false; }
  // Reads the outputs of the layers for `rows` rows of the last batch, [rows][hidden], in front of
  // the final norm.
  virtual void read_streams(int64_t /*first*/, int64_t /*rows*/, float* /*to*/) {}

  virtual void copy_pages(std::span<const PageCopy> copies) = 0;
  // Makes sequence `to` begin as `from` does; what is not in pages is copied.
  virtual void fork(int64_t from, int64_t to) = 0;
  // Copies the states of recurrent layers in slot `from` to slot `to`; slot s < sequences belongs
  // to sequence s. A sequence that begins at position 0 needs no state.
  virtual void copy_state(int32_t from, int32_t to) = 0;

  // Returns whether the memory of sequences can be visited, by the functions below.
  virtual bool has_memory() const { return false; }
  // Visits what holds the first `positions` tokens of a sequence, whose pages are reserved. If
  // `restores`, the visitor writes it, and the sequence then has these tokens; throws bad_input if
  // what was written is impossible.
  virtual void visit_sequence(int64_t /*sequence*/, int64_t /*positions*/, bool /*restores*/,
                              MemoryVisitor) {}
  // Visits the states of recurrent layers in a slot.
  virtual void visit_state(int32_t /*slot*/, MemoryVisitor) {}

  // A device may choose the next tokens itself, by the rules of generate/sampler.h; the functions
  // below are called only if it does.
  virtual bool can_sample() const { return false; }
  // Sets how `sequence` is continued from now on; `history` has the tokens that the repeat penalty
  // knows.
  virtual void start_sampling(int64_t, const SamplerOptions&, std::span<const int32_t>) {}
  // Returns what was chosen in the oldest batch that was not asked for yet, -1 where no logit was
  // finite; waits until it is there. At most two batches may be open, so that the device need not
  // wait for the host.
  virtual std::span<const int32_t> sampled() { return {}; }
};

// Returns the pages of a session's cache on the model's device.
KvShape kv_shape(const Model& model, const SessionOptions& options);

// Makes an executor on the device where the model's weights are. Allocates all that run() needs for
// sequences in `pages`, which outlives it; throws limit with the numbers if that is too much.
std::unique_ptr<Executor> make_executor(const Model& model, const KvPages& pages,
                                        const SessionOptions& options);

}  // namespace walsh
