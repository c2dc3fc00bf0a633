// The operations of the forward pass on a GPU. Everything is allocated when it is made; batches of
// single tokens are captured into CUDA graphs, one per number of rows and reach of the context, and
// replayed with other tokens, positions and sequences.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "base/cuda/graph.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/sampling/sampling.h"
#include "model/cuda/executor_memory.h"
#include "model/cuda/linear.h"
#include "model/cuda/pinned_uploads.h"
#include "model/part_executor.h"
#include "model/row_groups.h"

namespace walsh {

class CudaExecutor : public PartExecutor {
 public:
  CudaExecutor(const Model& model, const KvPages& pages, int64_t snapshots);
  ~CudaExecutor() override;

  int64_t max_rows() const override { return memory_->max_rows; }
  int64_t max_prompts() const override;
  int64_t logit_rows() const override { return memory_->logit_rows; }
  void run(const Batch& batch) override;
  void logits(int64_t first, int64_t rows) override;
  std::span<const float> logit_row(int64_t index) override;
  void copy_state(int32_t from, int32_t to) override;
  void copy_pages(std::span<const PageCopy> copies) override;
  void fork(int64_t from, int64_t to) override;
  bool can_sample() const override;
  void start_sampling(int64_t sequence, const SamplerOptions& options,
                      std::span<const int32_t> history) override;
  std::span<const int32_t> sampled() override;
  const ForwardPass& pass() const override { return pass_; }
  // Whether all layers of one token are one launch (cuda::PersistentProgram).
  bool steps_are_one_launch() const { return !layer_program_.empty(); }
  void run_parts(const Batch& batch, FunctionRef<void()> body) override;
  void embed() override;
  void run_layers(int64_t begin, int64_t end) override;
  void read_rows(Rows which, int64_t first, int64_t count, float* to) override;
  void write_rows(Rows which, int64_t first, int64_t count, const float* from) override;

 private:
  static constexpr int64_t kOpenBatches = 2;
  // What a recorded step depends on: rows, reach of the context, and whether tokens are chosen and
  // some of them drawn.
  using RecordedShape = std::tuple<int64_t, int64_t, bool, bool>;
  struct Recorded {
    bool warm = false;                // has run once
    int64_t used = 0;                 // count of the batch that was the last one of this shape
    cuda::Graph graph[kOpenBatches];  // by the slot that takes what is chosen
    std::map<int64_t, cuda::Graph> layers;  // of a part of a model: steps by their first layer
  };

  // What an operation multiplies, over `m` rows of the batch from row `skip` on.
  struct Multiplication {
    const Input* input = nullptr;
    CudaSource source;
    std::vector<CudaMatmul> items;
  };
  Multiplication multiplication(const ForwardOp& op, int64_t skip) const;
  Multiplication head_multiplication(const float* rows) const;
  const float* wanted_rows(int64_t first, int64_t rows);
  // One operation over the rows of the batch from `skip` on.
  void execute(const ForwardOp& op, int64_t skip);
  void place_heads(const ForwardOp& op);
  void attend(const ForwardOp& op, int64_t skip);
  void attend_pages(const ForwardOp& op, int64_t skip);
  void spread_latent(const AttentionDesc& a);
  void close_values(const AttentionDesc& a, int64_t skip);
  void add_branch(const ForwardOp& op, int64_t skip);
  void multiply(const ForwardOp& op, int64_t skip);
  bool routes_in_front(const ForwardOp& op, int64_t skip) const;
  void route(const ForwardOp& op, int64_t skip);
  cuda::InputSource stream_source(const ForwardOp& op, int matrix, int64_t skip) const;
  cuda::InputSource expert_source(const ForwardOp& op, int64_t skip) const;
  void run_experts(const ForwardOp& op, int64_t skip);
  void sum_experts(const ForwardOp& op, int64_t skip);
  void convolve(const ForwardOp& op);
  void apply_rule(const ForwardOp& op, int64_t skip);
  void gate_mixed(const ForwardOp& op, int64_t skip);
  cuda::HeadGates head_gates(const LayerDesc& desc, int64_t layer, int64_t skip) const;
  CudaDeltaNet::Rows delta_rows() const;
  // The same as a part of a program. False if it cannot be.
  bool collect(const ForwardOp& op, cuda::PersistentProgram& program) const;
  bool collect_experts(const ForwardOp& op, cuda::PersistentProgram& program) const;
  bool collect_attention(const ForwardOp& op, cuda::PersistentProgram& program) const;
  bool collect_delta(const ForwardOp& op, cuda::PersistentProgram& program) const;
  const LayerDesc& layer_of(const ForwardOp& op) const {
    return model_.config.layers[static_cast<size_t>(op.layer)];
  }
  const AttentionDesc& attention_of(const ForwardOp& op) const { return layer_of(op).attention; }
  const CudaMemory::Gains& gains_of(const ForwardOp& op) const {
    return memory_->gains[static_cast<size_t>(op.layer)];
  }
  float* queries(const ForwardOp& op) const;
  cuda::RopeCall rope_call(const ForwardOp& op) const;
  cuda::AttentionRows attention_rows(const ForwardOp& op) const;
  cuda::AttentionCall attention_call(const ForwardOp& op, int64_t first, int64_t rows) const;
  void build_programs();
  void describe(const Batch& batch);
  void compute();
  void compute_layers(int64_t begin, int64_t end);
  void sample();
  bool draws() const;
  bool places_next() const;
  float* row(Rows which, int64_t index, int64_t stride) const;

  void upload_constants();
  void upload_rope(size_t index, cuda::Uploader& uploader);
  void upload_growth(cuda::Uploader& uploader);
  void run_or_replay();
  Recorded& recorded_batch();
  bool can_record() const;
  std::vector<int32_t> pool_pages(int64_t sequence) const;
  void upload_pages();
  void stage();
  bool is_placed() const;
  void keep_chosen();
  int32_t* staged(int64_t array) const {
    return memory_->staged.as<int32_t>() + array * memory_->max_rows;
  }
  cuda::RowPlaces places() const { return {staged(1), staged(2)}; }

  const Model& model_;
  const KvPages& pages_;
  const KvShape shape_;            // of them in pages of the device
  const cuda::DeviceInfo device_;  // made current before its stream and events come to be
  cuda::OwnedStream stream_;
  PinnedUploads uploads_;  // what sampling of new sequences needs
  std::unique_ptr<CudaMemory> memory_;
  std::vector<int64_t> expert_strides_;  // of layers; 0 where there are no experts
  std::vector<int32_t> uploaded_table_;  // what the page table on the device holds
  cuda::StoredTable embedding_;
  ForwardPass pass_;
  cuda::PinnedBuffer host_logits_;
  cuda::PinnedBuffer host_rows_;  // of a part without the embedding, on their way
  cuda::StreamEvent rows_sent_;
  // What goes to the device and what is chosen there, for the batches that are open.
  struct Slot {
    cuda::PinnedBuffer staged, chosen;
    cuda::StreamEvent sent, done;
    size_t count = 0;  // tokens chosen
  };
  Slot& free_slot();
  Slot slots_[kOpenBatches];
  int64_t next_slot_ = 0;              // for staging
  int64_t submitted_ = 0, taken_ = 0;  // batches that chose tokens
  std::vector<bool> greedy_;           // per sequence

  std::vector<Run> placed_;       // that staged_ holds already: behind what was chosen last
  Batch batch_;                   // the current one,
  int64_t m_ = 0;                 // its rows,
  std::vector<RowGroup> groups_;  // and those of its attention
  std::vector<int32_t> wanted_;   // rows whose logits are wanted
  bool decoding_ = false;         // single tokens whose logits are wanted all
  int64_t computed_logits_ = 0;   // rows of logits_
  bool logits_read_ = false;
  int64_t batches_ = 0;  // that were evaluated
  std::map<RecordedShape, Recorded> recorded_;
  cuda::PersistentProgram layer_program_;  // all layers of one token, or empty
  cuda::PersistentProgram head_program_;   // the head behind them, or empty
};

}  // namespace walsh
