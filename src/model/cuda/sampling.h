// Chooses tokens on the device behind the logits of an executor on a GPU: they become the next
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
  static constexpr size_t kOpenBatches = 2;  // batches whose tokens were not taken

  // All arguments outlive it.
  CudaSampling(const CudaOperands& operands, const KvPages& pages);

  bool available() const;
  // Does the work of Executor::start_sampling().
  void start(int64_t sequence, const SamplerOptions& options, std::span<const int32_t> history,
             cuda::Stream stream);
  // Returns whether a token of the batch is drawn, and not only the best one taken.
  bool draws(const CudaBatch& batch) const;
  // Returns which slot takes what is chosen next; throws internal if all are open.
  size_t free_slot() const;
  size_t next_slot() const { return static_cast<size_t>(submitted_) % kOpenBatches; }
  // Chooses a token behind each of `rows` rows of logits.
  void sample(const CudaBatch& batch, const Operand& logits, int64_t rows, cuda::Stream stream);
  // Marks what was chosen for `rows` rows as the host's, once the stream has come to here.
  void keep(int64_t rows, cuda::Stream stream);
  // Does the work of Executor::sampled().
  std::span<const int32_t> take();

 private:
  // Holds tokens on their way to the host.
  struct Slot {
    cuda::PinnedBuffer tokens;
    cuda::StreamEvent done;
    size_t count = 0;
  };

  const CudaOperands& operands_;
  const CudaMemory& memory_;
  const KvPages& pages_;
  PinnedUploads uploads_;     // what sampling of new sequences needs
  std::vector<bool> greedy_;  // per sequence
  Slot slots_[kOpenBatches];
  int64_t submitted_ = 0, taken_ = 0;  // batches that chose tokens
};

}  // namespace walsh
