// Runs the forward pass of a model in two parts. Each part's executor computes its own layers, and
// the residual stream goes from one to the other through host memory.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/aligned.h"
#include "model/part_executor.h"

namespace walsh {

class SplitExecutor : public Executor {
 public:
  using Parts = std::array<std::unique_ptr<PartExecutor>, 2>;

  // `parts` hold the executors of model.parts, in that order.
  SplitExecutor(const Model& model, Parts parts);

  int64_t max_rows() const override { return max_rows_; }
  int64_t max_prompts() const override;
  int64_t logit_rows() const override { return parts_[kLast]->logit_rows(); }
  void run(const Batch& batch) override;
  void logits(int64_t first, int64_t rows) override { parts_[kLast]->logits(first, rows); }
  std::span<const float> logit_row(int64_t index) override {
    return parts_[kLast]->logit_row(index);
  }
  bool has_streams() const override { return parts_[kLast]->has_streams(); }
  void read_streams(int64_t first, int64_t rows, float* to) override {
    parts_[kLast]->read_rows(Rows::stream, first, rows, to);
  }
  void copy_pages(std::span<const PageCopy> copies) override;
  void fork(int64_t from, int64_t to) override;
  void copy_state(int32_t from, int32_t to) override;

 private:
  static constexpr size_t kLast = 1;  // This part has the head; the other one has the embedding.
  // Describes consecutive layers [begin, end) that one part computes without interruption by the
  // other.
  struct Step {
    size_t part;
    int64_t begin, end;
    bool takes_branch = false;  // The step adds the output of the other part's shared expert.
  };

  void describe(const Model& model);
  void compute();
  void hand_over(Rows which, size_t from, size_t to, int64_t first, int64_t count);

  const int64_t hidden_;
  ThreadPool& pool_;
  Parts parts_;
  int64_t max_rows_;
  std::vector<Step> steps_;
  AlignedArray<float> rows_;  // Its shape is [max_rows][hidden]; it holds rows in transit.
  // These describe the current batch: how many rows it has, how many of them have wanted logits,
  // and which row is the first one that is needed after the layers.
  int64_t m_ = 0, wanted_ = 0, first_wanted_ = 0;
};

}  // namespace walsh
