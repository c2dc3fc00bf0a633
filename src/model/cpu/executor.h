// The steps of the forward pass on the CPU.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned.h"
#include "kernels/ops.h"
#include "model/cpu/kv_cache.h"
#include "model/executor.h"

namespace walsh {

class CpuExecutor : public Executor {
 public:
  // Told the inputs of products that are plain float32: [m] rows of `stride` floats each.
  using InputObserver =
      std::function<void(const Input& input, const float* rows, int64_t stride, int64_t m)>;

  CpuExecutor(const Model& model, int64_t positions, const SessionOptions& options);

  int64_t max_rows() const override { return max_rows_; }
  int64_t logit_rows() const override { return logit_rows_; }
  void run(std::span<const int32_t> tokens, std::span<const Run> runs, int64_t first_logit,
           bool samples, FunctionRef<void()> steps) override;
  void embed() override;
  void project(int64_t layer) override;
  void attend(int64_t layer, int64_t skip) override;
  void mlp(int64_t layer, int64_t skip) override;
  void logits(int64_t row, int64_t rows) override;
  std::span<const float> logit_row(int64_t index) override;

  void observe(InputObserver observer) { observer_ = std::move(observer); }
  // The residual stream of a row of the batch, [hidden], to be read or replaced between the steps.
  std::span<float> hidden(int64_t row);
  // What logits() does before its product.
  void prepare_head(int64_t row, int64_t rows);

 private:
  // A prepared input of the current rows: int8 planes, or float32 rows of `stride`.
  struct Workspace {
    ActivationsI8 quantized;
    AlignedArray<float> rows;
    int64_t stride = 0;
  };
  // One product of a fused dispatch: y[m][ldy] = linear(its input) + bias.
  struct Product {
    const Linear* linear;
    const Input* input;
    float* y;
    int64_t ldy;
  };
  void allocate(int64_t positions, uint64_t max_bytes);
  void prepare(const Input& input, const float* x, int64_t ldx, int64_t m);
  void tell(const Input& input, int64_t m) const;
  void prepare_row(const Input& input, const float* x, int64_t row, float* scratch);
  void multiply(std::initializer_list<Product> products, int64_t m);
  void multiply_units(const Product& product, int64_t begin, int64_t end, int64_t m);
  // Of the rows [row_begin, row_end) and the tokens [begin, end).
  void add_bias(const Product& product, int64_t row_begin, int64_t row_end, int64_t begin,
                int64_t end);
  // Outputs of a two-sided rotation, then their bias.
  void rotate_back(const Product& product, int64_t m);
  void place_heads(const Layer& layer);
  void attend_run(int64_t layer, size_t index, int64_t first, int64_t skip);
  void add_rows(const float* branch, int64_t m, float* x);
  template <typename Body>
  void for_rows(int64_t m, Body&& body);

  const Model& model_;
  const Ops& ops_;
  InputObserver observer_;
  int64_t max_rows_;    // tokens evaluated together
  int64_t logit_rows_;  // rows of logits computed together
  int64_t m_ = 0;       // rows of the current batch
  std::span<const int32_t> tokens_;
  std::span<const Run> runs_;
  std::vector<int64_t> positions_;     // per row
  std::vector<Workspace> workspaces_;  // as Model::buffers
  // [max_rows] rows, each row 64-byte aligned
  AlignedArray<float> x_, branch_, q_, k_, v_, attended_, gate_, up_, logits_;
  int64_t x_stride_, q_stride_, kv_stride_, mlp_stride_, logits_stride_;
  std::unique_ptr<KvCache> cache_;
  std::vector<AlignedArray<float>> scratch_;  // per thread
  std::vector<float> frequencies_;            // of rope, [head_dim / 2]
  AlignedArray<float> cos_, sin_;             // [max_rows][head_dim / 2], of the current batch
};

}  // namespace walsh
