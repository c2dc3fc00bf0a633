// Samples on the device with the rules of generate/sampler.h, which are repeat penalty, top-k,
// top-p, min-p and temperature, in that order. Among equal logits the lower id is preferred.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cuda/device.h"
#include "kernels/sampler_options.h"

namespace walsh::cuda {

inline constexpr int64_t kMaxSampledVocab = int64_t{1} << 18;

// Holds the sampling options and the state of a sequence. It is on the device, so that recorded
// launches can be replayed for any mix of options.
struct SampleState {
  SamplerOptions options;
  double log_min_p = 0;  // It is set only if min_p > 0.
  bool greedy = false;   // If true, the best token is taken without drawing.
  bool penalty = false;  // If true, the history is read and extended.
  bool sum_all = false;  // If true, top_p is a share of all tokens.
  int32_t length = 0;    // The history has this many tokens.
  uint64_t random = 0;   // It is the SplitMix64 state, initially the seed as in Random(seed).
};

// Returns the state of a sequence with `length` tokens of history. Options must have been checked
// (check_sampler_options).
SampleState sample_state(const SamplerOptions& options, int64_t vocab, int32_t length);

// Describes the rows of the batch (RowPlaces and their tokens).
struct SampledRows {
  int32_t* tokens = nullptr;
  int32_t* positions = nullptr;
  int32_t* sequences = nullptr;  // If it is null, row t of the logits is sequence t.
  // Row t of the logits belongs to this row of the batch; null: to row t.
  int32_t* wanted = nullptr;
  // If true, the sampled tokens become the next batch. Its row t is the position after that of row
  // wanted[t], where wanted is the identity or there is one row.
  bool places_next = false;
};

struct SampleCall {
  const float* logits = nullptr;  // Its shape is [m][ldl].
  int64_t ldl = 0;
  int64_t vocab = 0;
  int64_t m = 0;
  SampledRows rows;
  SampleState* states = nullptr;  // Its shape is [sequences].
  // It has the shape [sequences][history_stride] and is used where there is a penalty.
  int32_t* history = nullptr;
  int64_t history_stride = 0;
  bool draws = true;        // If true, some row is not greedy.
  int32_t* next = nullptr;  // Its shape is [sequences]; -1: no logit is finite.
  // Gets a copy of the tokens, [m], in pinned host memory; or null.
  int32_t* host = nullptr;
};

// Holds the device memory for sampling up to max_m rows of `vocab` logits. Only one launch at a
// time may use it.
class SampleScratch {
 public:
  SampleScratch() = default;
  SampleScratch(int64_t max_m, int64_t vocab);
  static uint64_t bytes(int64_t max_m, int64_t vocab);

  std::byte* data() const { return data_.as<std::byte>(); }
  int64_t max_m() const { return max_m_; }
  int64_t vocab() const { return vocab_; }

 private:
  Buffer data_;
  int64_t max_m_ = 0, vocab_ = 0;
};

// Samples a token for every row, advances the random states by one draw (not for temperature 0) and
// appends the tokens to the histories while they have room. The token is that of the CPU's sampler
// for the same random state, unless the drawn point is within about 1e-12 of the border between two
// tokens (sums of weights are rounded to 2^-44 of the best weight) or a probability equals top_p to
// as many digits. Throws internal for a vocabulary beyond kMaxSampledVocab.
void sample(const SampleCall& call, const SampleScratch& scratch, Stream stream);

// Computes tokens[t] = next[sequences[t]] for rows whose token is -1.
void take_chosen(int32_t* tokens, const int32_t* sequences, const int32_t* next, int64_t m,
                 Stream stream);

}  // namespace walsh::cuda
