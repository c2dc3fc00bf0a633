// The operations of the forward pass on a GPU. Everything is allocated when it is made; decoding
// steps are captured into CUDA graphs, one per number of rows and reach of the context, and
// replayed with other tokens and positions.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "base/cuda/graph.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sampling.h"
#include "model/cuda/coded_caches.h"
#include "model/cuda/sites.h"
#include "model/executor.h"
#include "model/forward.h"

namespace walsh {

// Device memory of an executor beside weights and cache.
uint64_t cuda_workspace_bytes(const ModelConfig& config, const CudaShapes& shapes,
                              int64_t positions, int64_t sequences, int64_t rows);

// Ids of a sequence that sampling can remember: what the prompt had and what is generated.
inline int64_t cuda_history_stride(int64_t positions) {
  return 2 * positions;
}

class CudaExecutor : public Executor {
 public:
  CudaExecutor(const Model& model, int64_t positions, const SessionOptions& options);
  ~CudaExecutor() override;

  int64_t max_rows() const override { return max_rows_; }
  int64_t logit_rows() const override { return logit_rows_; }
  void run(std::span<const int32_t> tokens, std::span<const Run> runs, int64_t first_logit,
           bool samples) override;
  void logits(int64_t row, int64_t rows) override;
  std::span<const float> logit_row(int64_t index) override;
  bool can_sample() const override;
  void start_sampling(int64_t sequence, const SamplerOptions& options,
                      std::span<const int32_t> history) override;
  std::span<const int32_t> sampled() override;

 private:
  // What a layer needs beside its matrices, in device memory.
  struct LayerData {
    std::vector<cuda::Buffer> gains;  // of the norms in front of inputs, by input
    cuda::Buffer q_norm, k_norm, after_attention, after_mlp;
    cuda::KvPool cache;  // unless caches are coded
  };
  static constexpr int64_t kOpenBatches = 2;
  // What a recorded step depends on: rows, reach of the context, first sequence, and whether tokens
  // are chosen.
  using StepShape = std::tuple<int64_t, int64_t, int64_t, bool>;
  struct Recorded {
    bool warm = false;                // has run once
    cuda::Graph graph[kOpenBatches];  // by the slot that takes what is chosen
  };

  // What an operation multiplies, over `m` rows of the batch from row `skip` on.
  struct Multiplication {
    const Input* input = nullptr;
    cuda::InputSource source;
    std::vector<CudaItem> items;
  };
  Multiplication multiplication(const ForwardOp& op, int64_t skip) const;
  Multiplication head_multiplication(int64_t row) const;
  // One operation over the rows of the batch from `skip` on.
  void execute(const ForwardOp& op, int64_t skip);
  void place_heads(const ForwardOp& op);
  void attend(const ForwardOp& op, int64_t skip);
  void add_branch(const ForwardOp& op, int64_t skip);
  // The same as a part of a program. False if it cannot be.
  bool collect(const ForwardOp& op, cuda::StepProgram& program) const;
  const AttentionDesc& attention_of(const ForwardOp& op) const;
  cuda::RopeCall rope_call(const ForwardOp& op) const;
  cuda::AttentionRows attention_rows(const ForwardOp& op) const;
  cuda::AttentionCall attention_call(const ForwardOp& op, int64_t first, int64_t rows) const;
  void build_step();
  void compute(int64_t first_logit, bool samples);
  void embed();
  void sample(int64_t first);
  float* row(Rows which, int64_t index, int64_t stride) const;

  void allocate_rows(int64_t sequences);
  void allocate_cache(int64_t positions, int64_t sequences, cuda::Uploader& uploader);
  void upload_constants(int64_t positions, cuda::Uploader& uploader);
  void run_or_replay(int64_t first_logit, bool samples);
  void stage(std::span<const int32_t> tokens);
  bool is_placed(std::span<const int32_t> tokens) const;
  void keep_chosen();
  int64_t history_stride() const { return cuda_history_stride(positions_); }
  int32_t* staged(int64_t array) const { return staged_.as<int32_t>() + array * max_rows_; }
  cuda::RowPlaces places() const { return {staged(1), staged(2)}; }

  const Model& model_;
  const cuda::DeviceInfo device_;  // made current before its stream and events come to be
  cuda::OwnedStream stream_;
  int64_t max_rows_ = 0, logit_rows_ = 0, positions_ = 0;
  std::unique_ptr<CudaSites> sites_;
  std::vector<LayerData> layers_;
  cuda::Buffer final_gain_, pages_;
  struct Rope {
    int pairs = 0;
    cuda::Buffer cos, sin;  // [positions][pairs]
  };
  std::vector<Rope> ropes_;  // as ModelConfig::ropes
  cuda::PageTable table_;
  std::unique_ptr<CudaCodedCaches> coded_;  // or null: fp16
  cuda::StoredTable embedding_;
  ForwardPass pass_;
  std::array<cuda::Buffer, 9> rows_;  // by Rows: float [max_rows][width]; [logit_rows][vocab]
  cuda::AttentionScratch attention_scratch_;
  cuda::Buffer staged_;  // int32 [3][max_rows]: tokens, positions, sequences of the batch
  cuda::PinnedBuffer host_logits_;
  // What goes to the device and what is chosen there, for the batches that are open.
  struct Slot {
    cuda::PinnedBuffer staged, chosen;
    cuda::StreamEvent sent, done;
    size_t count = 0;  // tokens chosen
  };
  Slot& free_slot();
  Slot slots_[kOpenBatches];
  int64_t next_slot_ = 0;                                   // for staging
  int64_t submitted_ = 0, taken_ = 0;                       // batches that chose tokens
  cuda::Buffer random_, history_, history_lengths_, next_;  // of sampling, per sequence
  cuda::SampleScratch sample_scratch_;
  cuda::SampleOptions sample_options_;

  std::vector<Run> placed_;      // that staged_ holds already: behind what was chosen last
  std::span<const Run> runs_;    // of the current batch
  int64_t m_ = 0;                // its rows
  int64_t longest_ = 0;          // positions of its longest sequence
  bool decoding_ = false;        // every run is one row
  int64_t computed_logits_ = 0;  // rows of logits_
  bool logits_read_ = false;
  std::map<StepShape, Recorded> recorded_;
  cuda::StepProgram step_;       // all layers of one token, or empty
  cuda::StepProgram head_step_;  // the head behind them, or empty
};

}  // namespace walsh
