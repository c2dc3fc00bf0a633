// What the GPU's executor does behind the logits: tokens are chosen on the device, and become the
// next batch there.
#include <algorithm>

#include "model/cuda/executor.h"

namespace walsh {

bool CudaExecutor::can_sample() const {
  return model_.config.vocab <= cuda::kMaxSampledVocab;
}

void CudaExecutor::start_sampling(int64_t sequence, const SamplerOptions& options,
                                  std::span<const int32_t> history) {
  cuda::select_device(model_.device.index);
  // The history is only kept where a penalty reads it; it holds what the context can.
  const auto count = std::min<size_t>(history.size(), static_cast<size_t>(pages_.shape().capacity));
  const cuda::SampleState state =
      cuda::sample_state(options, model_.config.vocab, static_cast<int32_t>(count));
  greedy_[static_cast<size_t>(sequence)] = state.greedy;
  // Batches that are open go on: what they read is written behind them.
  uploads_.copy(memory_->sample_states.as<cuda::SampleState>() + sequence, &state, sizeof state,
                stream_.get());
  if (state.penalty) {
    const auto recent = history.last(count);
    uploads_.copy(memory_->history.as<int32_t>() + sequence * memory_->history_stride,
                  recent.data(), recent.size_bytes(), stream_.get());
  }
}

// Whether a token is drawn, and not only the best one taken.
bool CudaExecutor::draws() const {
  return batch_.samples &&
         std::any_of(batch_.runs.begin(), batch_.runs.end(), [this](const Run& run) {
           return run.logits > 0 && !greedy_[static_cast<size_t>(run.sequence)];
         });
}

void CudaExecutor::sample() {
  cuda::SampleCall call;
  call.logits = row(Rows::logits, 0, 0);
  call.ldl = call.vocab = model_.config.vocab;
  call.m = computed_logits_;
  call.rows = {staged(0), staged(1), staged(2), staged(3), places_next()};
  call.states = memory_->sample_states.as<cuda::SampleState>();
  call.history = memory_->history.as<int32_t>();
  call.history_stride = memory_->history_stride;
  call.draws = draws();
  call.next = memory_->next.as<int32_t>();
  call.host = free_slot().chosen.as<int32_t>();
  cuda::sample(call, memory_->sample_scratch, stream_.get());
}

// Whether what is chosen can be made the next batch where this one is described.
bool CudaExecutor::places_next() const {
  return decoding_ || wanted_.size() == 1;
}

// Where the host finds the tokens that are chosen next.
CudaExecutor::Slot& CudaExecutor::free_slot() {
  if (submitted_ - taken_ == kOpenBatches) {
    throw Error(ErrorCode::internal, "sampling", "tokens of earlier batches were not taken");
  }
  return slots_[submitted_ % kOpenBatches];
}

// What was chosen is the host's behind the step, and the next batch.
void CudaExecutor::keep_chosen() {
  Slot& slot = slots_[submitted_++ % kOpenBatches];
  slot.count = static_cast<size_t>(computed_logits_);
  slot.done.record(stream_.get());
  if (!places_next()) return;
  for (const Run& run : batch_.runs)
    if (run.logits > 0) placed_.push_back({run.sequence, run.position + run.rows, 1, 1});
}

std::span<const int32_t> CudaExecutor::sampled() {
  if (submitted_ == taken_) throw Error(ErrorCode::internal, "sampling", "no batch is open");
  Slot& slot = slots_[taken_++ % kOpenBatches];
  slot.done.wait();
  return {slot.chosen.as<int32_t>(), slot.count};
}

}  // namespace walsh
