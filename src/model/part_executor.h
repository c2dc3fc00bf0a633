// Executes a part of a model. SplitExecutor (split_executor.h) calls it layer by layer.
#pragma once

#include "base/function_ref.h"
#include "model/executor.h"
#include "model/steps.h"

namespace walsh {

// The CPU evaluates at most this many tokens together; so does a device that shares a model with
// it.
inline constexpr int64_t kCpuRows = 256;

class PartExecutor : public Executor {
 public:
  // Returns the steps of the part.
  virtual const ModelSteps& steps() const = 0;
  // Prepares a batch, runs `body`, and ends the batch. `body` calls the functions below and
  // logits() to execute steps.
  virtual void run_parts(const Batch& batch, FunctionRef<void()> body) = 0;
  // Turns the tokens into the residual stream, if the part has the embedding.
  virtual void embed() = 0;
  // Runs the steps of the layers [begin, end), each over the rows that it needs.
  virtual void run_layers(int64_t begin, int64_t end) = 0;
  // These copy `count` rows of the residual stream or of `branch` from row `first` on,
  // [count][hidden] in host memory. Reading waits for the device.
  virtual void read_rows(Rows which, int64_t first, int64_t count, float* to) = 0;
  virtual void write_rows(Rows which, int64_t first, int64_t count, const float* from) = 0;
};

}  // namespace walsh
