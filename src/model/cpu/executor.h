// Runs the steps of a model on the CPU.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/aligned.h"
#include "kernels/ops.h"
#include "model/cpu/delta_net.h"
#include "model/cpu/kv_cache.h"
#include "model/cpu/row_buffer.h"
#include "model/part_executor.h"
#include "model/routing.h"

namespace walsh {

class CpuExecutor : public PartExecutor {
 public:
  // These are rows of an input that products read as plain float32.
  struct InputRows {
    const float* values;  // There are `count` rows, `stride` floats apart.
    int64_t stride, count;
    int expert;               // This expert reads the rows; -1: no expert reads them.
    const int64_t* of_batch;  // They are these rows of the batch; null: the first ones.
  };
  using InputObserver = std::function<void(const Input& input, const InputRows& rows)>;

  // `snapshots` is SessionOptions::kept_states.
  CpuExecutor(const Model& model, const KvPages& pages, uint64_t max_bytes, int64_t snapshots = 0);

  int64_t max_rows() const override { return max_rows_; }
  int64_t logit_rows() const override { return logit_rows_; }
  void run(const Batch& batch) override;
  void logits(int64_t first, int64_t rows) override;
  std::span<const float> logit_row(int64_t index) override;
  bool has_streams() const override { return true; }
  bool takes_images() const override { return true; }
  void read_streams(int64_t first, int64_t count, float* to) override {
    read_rows(Rows::stream, first, count, to);
  }
  void copy_pages(std::span<const PageCopy> copies) override;
  void fork(int64_t from, int64_t to) override { cache_->fork(from, to); }
  void copy_state(int32_t from, int32_t to) override { delta_net_.copy(from, to); }
  bool has_memory() const override { return true; }
  void visit_sequence(int64_t sequence, int64_t positions, bool restores,
                      MemoryVisitor visit) override {
    cache_->visit(sequence, positions, restores, visit);
  }
  void visit_state(int32_t slot, MemoryVisitor visit) override { delta_net_.visit(slot, visit); }

  void observe(InputObserver observer) { observer_ = std::move(observer); }
  void run_parts(const Batch& batch, FunctionRef<void()> body) override;
  void embed() override;
  void run_layers(int64_t begin, int64_t end) override;
  void read_rows(Rows which, int64_t first, int64_t count, float* to) override;
  void write_rows(Rows which, int64_t first, int64_t count, const float* from) override;
  // Runs one step over the rows of the batch from `skip` on.
  void execute(const Step& step, int64_t skip = 0);
  const ModelSteps& steps() const override { return model_.steps; }
  // Returns the residual stream of a row of the batch, [hidden], to be read or replaced between
  // steps.
  std::span<float> hidden(int64_t row);
  // Does what logits() does before its product, for `rows` rows from `row` on.
  void prepare_head(int64_t row, int64_t rows);

 private:
  // One product of a fused dispatch computes y[m][ldy] = linear(its input) + bias; the input is the
  // first m rows of the workspaces `x`.
  struct Matmul {
    const Linear* linear;
    const Input* input;
    float* y;
    int64_t ldy;
    int64_t m;
    const std::vector<Workspace>* x;
  };
  // Holds the table of one of ModelConfig::ropes, and the angles of the rows of the current batch.
  struct Rope {
    RopeTable table;
    AlignedArray<float> cos, sin;  // [max_rows][frequencies]

    int64_t pairs() const { return static_cast<int64_t>(table.frequencies.size()); }
  };
  // Names an activation, and the gain of the norm in front of it, or null.
  struct Source {
    const Input& input;
    const float* gain;
  };
  Source source(int layer, int input) const;
  const float* vector(int layer, int index) const { return model_.vector(layer, index).data(); }
  RowBuffer& rows(Rows which) { return rows_[static_cast<size_t>(which)]; }
  RowsView view(Rows which) { return {rows(which).values.data(), rows(which).stride}; }
  void allocate(int64_t positions, uint64_t max_bytes);
  void find_angles();
  void find_together();
  // Adds the values that images have for a layer to the output of that layer.
  void add_images(int64_t layer);
  // These run the steps over the rows from `skip` on.
  void perform(const step::Embed& s, int layer, int64_t skip);
  void perform(const step::Product& s, int layer, int64_t skip);
  void perform(const step::PrepareHeads& s, int layer, int64_t skip);
  void perform(const step::MultiplyHeads& s, int layer, int64_t skip);
  void perform(const step::Attend& s, int layer, int64_t skip);
  void perform(const step::Convolve& s, int layer, int64_t skip);
  void perform(const step::DeltaRule& s, int layer, int64_t skip);
  void perform(const step::GateHeads& s, int layer, int64_t skip);
  void perform(const step::Route& s, int layer, int64_t skip);
  void perform(const step::Experts& s, int layer, int64_t skip);
  void perform(const step::AddExperts& s, int layer, int64_t skip);
  void perform(const step::CenterRows& s, int layer, int64_t skip);
  void perform(const step::NormRows& s, int layer, int64_t skip);
  void perform(const step::AddBranch& s, int layer, int64_t skip);
  void perform(const step::Logits& s, int layer, int64_t skip);
  void weigh_slot(int64_t slot, int64_t width);
  void allocate_experts();
  static std::set<int> expert_buffers(const Model& model);
  static uint64_t expert_bytes(const Model& model, int64_t rows);
  void gather_expert_rows(const Input& input);
  void add_products(const step::Experts& s, int layer, int (ExpertsDesc::*matrix)(int64_t) const,
                    RowBuffer& to, std::vector<Matmul>& products);
  void gate_row(const GateRule& rule, float* gate, float* up, int64_t width) const;
  void prepare_gated(const step::Product& s, const Source& source, int64_t skip);
  void prepare(const Source& source, const float* x, int64_t ldx, int64_t m);
  void tell(const Input& input, int64_t m) const;
  void tell_experts(const Input& input) const;
  void prepare_row(const Source& source, const float* x, int64_t row, float* scratch,
                   std::vector<Workspace>& workspaces);
  void multiply(std::span<const Matmul> products);
  void multiply_units(const Matmul& product, int64_t begin, int64_t end);
  // Adds the bias to rows [row_begin, row_end) of tokens [begin, end).
  void add_bias(const Matmul& product, int64_t row_begin, int64_t row_end, int64_t begin,
                int64_t end);
  // Rotates outputs of a two-sided rotation back, and adds their bias.
  void rotate_back(const Matmul& product);
  void take_gates(const step::PrepareHeads& s, int64_t row);
  void prepare_heads(const step::PrepareHeads& s, const Norm& norm, int64_t heads, float* x,
                     int layer, int64_t row);
  void prepare_row(const step::PrepareHeads& s, int layer, int64_t row);
  void normalize(const Norm& norm, int layer, float* x, int64_t width) const;
  void turn_heads(int rope, float* x, int64_t heads, int64_t dim, int64_t row);
  void join_latent(const step::PrepareHeads& s, int layer, int64_t row);
  void attend_run(const step::Attend& s, int layer, size_t index, int64_t first, int64_t skip);
  void gather_wanted(int64_t first, int64_t count);
  void add_rows(const Operand& branch, float scale, const Operand& x, int64_t skip);
  // Calls body(row, scratch) for each of m rows; a single one stays on this thread.
  void for_rows(int64_t m, FunctionRef<void(int64_t row, float* scratch)> body);

  const Model& model_;
  const Ops& ops_;
  InputObserver observer_;
  int64_t max_rows_;    // At most this many tokens are evaluated together.
  int64_t logit_rows_;  // At most this many rows of logits are computed together.
  int64_t m_ = 0;       // The current batch has this many rows.
  std::span<const int32_t> tokens_;
  std::span<const Run> runs_;
  std::span<const float> streams_;
  std::span<const PlacedRows> images_;
  std::span<const AxisPositions> axes_;
  std::vector<std::vector<SeenTogether>> together_;  // of each run; empty: of none
  int64_t first_read_ = 0;                           // Batch
  std::vector<int64_t> positions_;                   // per row
  std::vector<int64_t> wanted_;                      // rows whose logits are wanted
  int64_t first_logit_ = 0, logit_count_ = 0;        // of these, by the latest call of logits()
  std::vector<Workspace> workspaces_;      // They are in the order of ModelSteps::buffers.
  std::array<RowBuffer, kRowKinds> rows_;  // Rows is the index; there are logit_rows_ of logits.
  std::unique_ptr<KvCache> cache_;
  CpuDeltaNet delta_net_;
  std::vector<AlignedArray<float>> scratch_, log_sums_;  // Each thread has its own.
  std::vector<Rope> ropes_;
  // Each row has a factor for each of ModelSteps::query_factors.
  std::vector<AlignedArray<float>> query_factors_;
  // Describes the current layer with experts.
  struct Experts {
    std::vector<ChosenExpert> chosen;  // Its shape is [rows][chosen].
    ExpertSlots slots;
    std::vector<float> weights;  // Each slot has one.
    RowBuffer gate, up, out;     // Each slot has a row.
    // Each expert has one list, like workspaces_; inputs that no expert reads are empty.
    std::vector<std::vector<Workspace>> inputs;
    std::vector<float> scores;
  };
  Experts experts_;
};

}  // namespace walsh
