#include "model/cuda/sampling.h"

#include <algorithm>

namespace walsh {

CudaSampling::CudaSampling(const CudaOperands& operands, const KvPages& pages)
    : operands_(operands),
      memory_(operands.memory()),
      pages_(pages),
      greedy_(static_cast<size_t>(pages.shape().sequences)) {
  for (Slot& slot : slots_)
    slot.tokens = cuda::PinnedBuffer(static_cast<uint64_t>(memory_.logit_rows) * sizeof(int32_t));
}

bool CudaSampling::available() const {
  return operands_.model().config.vocab <= cuda::kMaxSampledVocab;
}

void CudaSampling::start(int64_t sequence, const SamplerOptions& options,
                         std::span<const int32_t> history, cuda::Stream stream) {
  // Only penalties read the history. As many tokens are kept as the context can have.
  const auto count = std::min<size_t>(history.size(), static_cast<size_t>(pages_.shape().capacity));
  const cuda::SampleState state =
      cuda::sample_state(options, operands_.model().config.vocab, static_cast<int32_t>(count));
  greedy_[static_cast<size_t>(sequence)] = state.greedy;
  // The copy is ordered after open batches, which still read the old state.
  uploads_.copy(memory_.sample_states.as<cuda::SampleState>() + sequence, &state, sizeof state,
                stream);
  if (state.penalty) {
    const auto recent = history.last(count);
    uploads_.copy(memory_.history.as<int32_t>() + sequence * memory_.history_stride, recent.data(),
                  recent.size_bytes(), stream);
  }
}

bool CudaSampling::draws(const CudaBatch& batch) const {
  return batch.samples() &&
         std::any_of(batch.runs().begin(), batch.runs().end(), [this](const Run& run) {
           return run.logits > 0 && !greedy_[static_cast<size_t>(run.sequence)];
         });
}

size_t CudaSampling::free_slot() const {
  if (submitted_ - taken_ == static_cast<int64_t>(kOpenBatches))
    throw Error(ErrorCode::internal, "sampling", "tokens of earlier batches were not taken");
  return next_slot();
}

void CudaSampling::sample(const CudaBatch& batch, const Operand& logits, int64_t rows,
                          cuda::Stream stream) {
  const auto staged = [&](int64_t array) { return operands_.staged(array); };
  cuda::SampleCall call;
  call.logits = operands_.row(logits);
  call.ldl = call.vocab = logits.width;
  call.m = rows;
  call.rows = {staged(0), staged(1), staged(2), staged(3), batch.places_next()};
  call.states = memory_.sample_states.as<cuda::SampleState>();
  call.history = memory_.history.as<int32_t>();
  call.history_stride = memory_.history_stride;
  call.draws = draws(batch);
  call.next = memory_.next.as<int32_t>();
  call.host = slots_[free_slot()].tokens.as<int32_t>();
  cuda::sample(call, memory_.sample_scratch, stream);
}

void CudaSampling::keep(int64_t rows, cuda::Stream stream) {
  Slot& slot = slots_[next_slot()];
  ++submitted_;
  slot.count = static_cast<size_t>(rows);
  slot.done.record(stream);
}

std::span<const int32_t> CudaSampling::take() {
  if (submitted_ == taken_) throw Error(ErrorCode::internal, "sampling", "no batch is open");
  Slot& slot = slots_[static_cast<size_t>(taken_++) % kOpenBatches];
  slot.done.wait();
  return {slot.tokens.as<int32_t>(), slot.count};
}

}  // namespace walsh
