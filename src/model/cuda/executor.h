// Runs the steps of a model on a GPU, in three ways: launched one by one (launches.h), as a CUDA
// graph of these launches that was recorded before (recorded.h), or as one launch of all layers
// (one_launch.h). Everything is allocated when it is made.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/cuda/batch.h"
#include "model/cuda/launches.h"
#include "model/cuda/operands.h"
#include "model/cuda/recorded.h"
#include "model/cuda/sampling.h"
#include "model/metering_executor.h"

namespace walsh {

class CudaExecutor : public MeteringExecutor {
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
  bool can_sample() const override { return sampling_->available(); }
  void start_sampling(int64_t sequence, const SamplerOptions& options,
                      std::span<const int32_t> history) override;
  std::span<const int32_t> sampled() override { return sampling_->take(); }
  const ModelSteps& steps() const override { return model_.steps; }
  // Returns whether one launch computes all layers for one token each of `rows` sequences
  // (cuda::PersistentProgram).
  bool steps_are_one_launch(int64_t rows = 1) const { return programs_for(rows) != nullptr; }
  bool has_streams() const override { return true; }
  void read_streams(int64_t first, int64_t rows, float* to) override {
    read_rows(Rows::stream, first, rows, to);
  }
  void run_parts(const Batch& batch, FunctionRef<void()> body) override;
  void embed() override { launches_->embed(); }
  void run_layers(int64_t begin, int64_t end) override;
  void read_rows(Rows which, int64_t first, int64_t count, float* to) override;
  void write_rows(Rows which, int64_t first, int64_t count, const float* from) override;
  void meter(const std::set<const Input*>& without_gain) override;
  void meter_head(int64_t rows) override;
  int64_t metered_experts(const Input& input) const override { return meter_->experts(input); }
  InputMoments metered(const Input& input, int expert) override;

 private:
  // Tells how many rows of logits are on the device and, once somebody has asked, on the host.
  struct Logits {
    cuda::PinnedBuffer host;
    int64_t computed = 0;
    bool on_host = false;
  };
  // Holds the pinned buffer in which rows go to and from another part of the model.
  struct Transfer {
    cuda::PinnedBuffer rows;
    cuda::StreamEvent sent;
  };

  // These programs compute steps of up to `rows` rows in one launch each.
  struct Programs {
    int rows = 1;
    cuda::PersistentProgram layers, head;  // Only `head` may be empty.
  };

  void* transferred_rows();
  void upload_constants();
  void make_programs();
  void upload_rope(size_t index, cuda::Uploader& uploader);
  void run_or_replay();
  bool can_record() const;
  RecordedBatches::Recorded& recorded_batch();
  // Returns the programs that take this many rows, or null.
  const Programs* programs_for(int64_t rows) const;
  // Returns the programs for the current batch, or null.
  const Programs* programs() const {
    return batch_->decoding() ? programs_for(batch_->rows()) : nullptr;
  }
  void compute();
  void compute_layers(int64_t begin, int64_t end);

  const Model& model_;
  const KvPages& pages_;
  const KvShape shape_;  // It describes pages_, divided into pages of the device.
  // The device becomes current before its stream and events are made.
  const cuda::DeviceInfo device_;
  cuda::OwnedStream stream_;
  std::unique_ptr<CudaMemory> memory_;
  std::unique_ptr<CudaOperands> operands_;
  std::unique_ptr<CudaBatch> batch_;
  std::unique_ptr<CudaSampling> sampling_;
  std::unique_ptr<CudaLaunches> launches_;
  std::unique_ptr<CudaInputMeter> meter_;  // If it is null, nothing is measured.
  RecordedBatches recorded_;
  std::vector<Programs> programs_;  // They are ordered by the number of rows.
  Logits logits_;
  Transfer transfer_;
};

}  // namespace walsh
