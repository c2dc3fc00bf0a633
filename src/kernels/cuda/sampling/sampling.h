// Choosing tokens on the device, by the rules of generate/sampler.h: repeat penalty, top-k, top-p,
// min-p, temperature, in that order; of equal logits the lower id is the better one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cuda/device.h"
#include "kernels/sampler_options.h"

namespace walsh::cuda {

inline constexpr int64_t kMaxSampledVocab = int64_t{1} << 18;

// How a sequence is continued and what its sampler remembers. It lies on the device, so that
// recorded launches can be replayed for any mix of options.
struct SampleState {
  SamplerOptions options;
  double log_min_p = 0;  // if min_p > 0
  bool greedy = false;   // the best token, without a draw
  bool penalty = false;  // the history is read and appended to
  bool sum_all = false;  // top_p is a share of all tokens
  int32_t length = 0;    // of the history
  uint64_t random = 0;   // SplitMix64 state: the seed at first, as Random(seed)
};

// Of a sequence of whose history `length` tokens are known. Options are checked by the caller
// (check_sampler_options).
SampleState sample_state(const SamplerOptions& options, int64_t vocab, int32_t length);

// Where the rows of the batch are described (RowPlaces and its tokens).
struct SampledRows {
  int32_t* tokens = nullptr;
  int32_t* positions = nullptr;
  int32_t* sequences = nullptr;  // null: row t of the logits is sequence t
  int32_t* wanted = nullptr;     // row of the batch whose logits row t is; null: t
  // What is chosen becomes the next batch, row t of it the position behind that of row wanted[t],
  // which is t for all rows or belongs to the only one.
  bool places_next = false;
};

struct SampleCall {
  const float* logits = nullptr;  // [m][ldl]
  int64_t ldl = 0;
  int64_t vocab = 0;
  int64_t m = 0;
  SampledRows rows;
  SampleState* states = nullptr;  // [sequences]
  int32_t* history = nullptr;     // [sequences][history_stride], read where there is a penalty
  int64_t history_stride = 0;
  bool draws = true;        // not every row is greedy
  int32_t* next = nullptr;  // [sequences]; -1 where no logit is finite
  int32_t* host = nullptr;  // [m] the same in pinned memory of the host, or null
};

// Device memory that sampling up to max_m rows of `vocab` logits needs. One launch at a time may
// use it.
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

// Chooses a token for every row, advances the random states by one draw (not with temperature 0)
// and appends the tokens to the histories, while they have room. The token is the CPU sampler's for
// the same random state, unless the drawn point is within about 1e-12 of the border between two
// tokens (sums of weights are rounded to 2^-44 of the best one's) or a probability equals top_p to
// as many digits. Throws internal for a vocabulary beyond kMaxSampledVocab.
void sample(const SampleCall& call, const SampleScratch& scratch, Stream stream);

// tokens[t] = next[sequences[t]] for those of m rows whose token is -1.
void take_chosen(int32_t* tokens, const int32_t* sequences, const int32_t* next, int64_t m,
                 Stream stream);

}  // namespace walsh::cuda
