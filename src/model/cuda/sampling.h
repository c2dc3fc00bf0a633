// Chooses tokens on the device after the logits of an executor on a GPU: they become the next
// batch there, and come to the host one batch later.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/cuda/batch.h"
#include "model/cuda/operands.h"
#include "model/cuda/pinned_uploads.h"

namespace walsh {

class CudaSampling {
 public:
  // This many batches may be open, i.e. their tokens not taken.
  static constexpr size_t kOpenBatches = 2;

  // All arguments outlive this object.
  CudaSampling(const CudaOperands& operands, const KvPages& pages);

  bool available() const;
  // Implements Executor::start_sampling().
  void start(int64_t sequence, const SamplerOptions& options, std::span<const int32_t> history,
             cuda::Stream stream);
  // Returns whether some token of the batch is drawn at random instead of being the best one.
  bool draws(const CudaBatch& batch) const;
  // Returns the slot for the tokens that are chosen next. Throws internal if all are open.
  size_t free_slot() const;
  size_t next_slot() const { return static_cast<size_t>(submitted_) % kOpenBatches; }
  // Chooses a token for each of `rows` rows of logits.
  void sample(const CudaBatch& batch, const Operand& logits, int64_t rows, cuda::Stream stream);
  // Hands the tokens of `rows` rows to the host once the stream has reached this point.
  void keep(int64_t rows, cuda::Stream stream);
  // Implements Executor::sampled().
  std::span<const int32_t> take();

 private:
  // Holds tokens that are on their way to the host.
  struct Slot {
    cuda::PinnedBuffer tokens;
    cuda::StreamEvent done;
    size_t count = 0;
  };

  const CudaOperands& operands_;
  const CudaMemory& memory_;
  const KvPages& pages_;
  PinnedUploads uploads_;     // It carries what the sampling of a new sequence needs.
  std::vector<bool> greedy_;  // Each sequence has a flag.
  Slot slots_[kOpenBatches];
  int64_t submitted_ = 0, taken_ = 0;  // They count batches that chose tokens.
};

}  // namespace walsh
