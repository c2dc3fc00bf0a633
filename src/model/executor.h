// A device that evaluates batches of tokens by the operations of forward.h. Chunks and positions
// are the business of Session, which knows no device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/function_ref.h"
#include "model/model.h"
#include "model/sampler_options.h"

namespace walsh {

struct SessionOptions {
  int64_t max_positions = 0;                // 0: the model's own maximum, at most 4096
  uint64_t max_bytes = uint64_t{64} << 30;  // of KV cache and workspaces together, in host memory
  int64_t sequences = 1;                    // that are decoded together, each with its own cache
};

// Consecutive tokens of one sequence within a batch.
struct Run {
  int64_t sequence = 0;
  int64_t position = 0;  // of its first token
  int64_t rows = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual int64_t max_rows() const = 0;    // tokens of one batch
  virtual int64_t logit_rows() const = 0;  // rows of one call of logits()

  // Evaluates a batch: the rows of `runs` one after the other, whose tokens are `tokens`; without
  // tokens, those that the last batch chose (see sample) and of the same sequences. Rows before
  // `first_logit` only go to the cache; the logits of those behind it are computed, as many as
  // logits() takes at once. Chooses a token for each of them if `samples`.
  virtual void run(std::span<const int32_t> tokens, std::span<const Run> runs, int64_t first_logit,
                   bool samples) = 0;
  // Logits of `rows` <= logit_rows() rows of the last batch from `row` on.
  virtual void logits(int64_t row, int64_t rows) = 0;
  // Those of row `index` of the last logits(), [vocab] in host memory; waits until they are there.
  virtual std::span<const float> logit_row(int64_t index) = 0;

  // A device may choose the next tokens itself, by the rules of generate/sampler.h; the others
  // below are called only if it does.
  virtual bool can_sample() const { return false; }
  // From now on `sequence` is continued so; `history` is what the repeat penalty knows. All
  // sequences have the same options but the seed.
  virtual void start_sampling(int64_t, const SamplerOptions&, std::span<const int32_t>) {}
  // What the oldest batch chose that was not asked yet, -1 where no logit was finite; waits until
  // it is there. At most two batches may be open, so that the device need not wait for the host.
  virtual std::span<const int32_t> sampled() { return {}; }
};

// On the device where the model's weights are. Allocates all that run() needs for `positions`
// positions; throws limit with the numbers if that is too much.
std::unique_ptr<Executor> make_executor(const Model& model, int64_t positions,
                                        const SessionOptions& options);

}  // namespace walsh
