// The operations of the forward pass on the CPU.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned.h"
#include "kernels/ops.h"
#include "model/cpu/kv_cache.h"
#include "model/executor.h"
#include "model/forward.h"

namespace walsh {

class CpuExecutor : public Executor {
 public:
  // Told the inputs of products that are plain float32: [m] rows of `stride` floats each.
  using InputObserver =
      std::function<void(const Input& input, const float* rows, int64_t stride, int64_t m)>;

  CpuExecutor(const Model& model, const KvPages& pages, uint64_t max_bytes);

  int64_t max_rows() const override { return max_rows_; }
  int64_t logit_rows() const override { return logit_rows_; }
  void run(const Batch& batch) override;
  void logits(int64_t first, int64_t rows) override;
  std::span<const float> logit_row(int64_t index) override;
  void copy_pages(std::span<const PageCopy> copies) override;
  void fork(int64_t from, int64_t to) override { cache_->fork(from, to); }

  void observe(InputObserver observer) { observer_ = std::move(observer); }
  // A batch of which single operations are executed: what `body` does between start and end.
  void run_parts(std::span<const int32_t> tokens, std::span<const Run> runs,
                 FunctionRef<void()> body);
  // One operation over the rows of the batch from `skip` on.
  void execute(const ForwardOp& op, int64_t skip = 0);
  const ForwardPass& pass() const { return pass_; }
  // The residual stream of a row of the batch, [hidden], to be read or replaced between operations.
  std::span<float> hidden(int64_t row);
  // What logits() does before its product, for `rows` rows from `row` on.
  void prepare_head(int64_t row, int64_t rows);

 private:
  // A prepared input of the current rows: int8 planes, or float32 rows of `stride`.
  struct Workspace {
    ActivationsI8 quantized;
    AlignedArray<float> rows;
    int64_t stride = 0;
  };
  // One product of a fused dispatch: y[m][ldy] = linear(its input) + bias.
  struct Matmul {
    const Linear* linear;
    const Input* input;
    float* y;
    int64_t ldy;
  };
  // Values of every row of a batch, each row 64-byte aligned.
  struct RowBuffer {
    int64_t width = 0, stride = 0;
    AlignedArray<float> values;  // [max_rows][stride]

    float* row(int64_t index) { return values.data() + index * stride; }
  };
  // Of one of ModelConfig::ropes: its table, and the angles of the rows of the current batch.
  struct Rope {
    RopeTable table;
    AlignedArray<float> cos, sin;  // [max_rows][frequencies]
    AlignedArray<float> query;     // [max_rows] factors of queries; empty: all are 1

    int64_t pairs() const { return static_cast<int64_t>(table.frequencies.size()); }
  };
  RowBuffer& rows(Rows which) { return rows_[static_cast<size_t>(which)]; }
  void allocate(int64_t positions, uint64_t max_bytes);
  void embed();
  void multiply(const ForwardOp& op, int64_t skip);
  void add_branch(const ForwardOp& op, int64_t skip);
  void attend(int64_t layer, int64_t skip);
  void prepare_gated(const LayerDesc& desc, const Input& input, int64_t m);
  const AttentionDesc& attention_of(int64_t layer) const;
  void prepare(const Input& input, const float* x, int64_t ldx, int64_t m);
  void tell(const Input& input, int64_t m) const;
  void prepare_row(const Input& input, const float* x, int64_t row, float* scratch);
  void multiply(std::span<const Matmul> products, int64_t m);
  void multiply_units(const Matmul& product, int64_t begin, int64_t end, int64_t m);
  // Of the rows [row_begin, row_end) and the tokens [begin, end).
  void add_bias(const Matmul& product, int64_t row_begin, int64_t row_end, int64_t begin,
                int64_t end);
  // Outputs of a two-sided rotation, then their bias.
  void rotate_back(const Matmul& product, int64_t m);
  void place_heads(int64_t layer);
  // Multiplies a row of queries by the factor of its position.
  void raise_query(const Rope& rope, int64_t width, int64_t row);
  void attend_run(int64_t layer, size_t index, int64_t first, int64_t skip);
  void gather_wanted(int64_t first, int64_t count);
  void add_rows(const float* branch, float scale, int64_t m, float* x);
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
  std::vector<int64_t> wanted_;        // rows whose logits are wanted
  std::vector<Workspace> workspaces_;  // as Model::buffers
  ForwardPass pass_;
  std::array<RowBuffer, 9> rows_;  // by Rows; those of logits are logit_rows_
  std::unique_ptr<KvCache> cache_;
  std::vector<AlignedArray<float>> scratch_;  // per thread
  std::vector<Rope> ropes_;
};

}  // namespace walsh
