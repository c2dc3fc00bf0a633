// Choosing tokens on the device, by the rules of generate/sampler.h: repeat penalty, top-k, top-p,
// min-p, temperature, in that order; of equal logits the lower id is the better one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cuda/device.h"

namespace walsh::cuda {

inline constexpr int64_t kMaxSampledVocab = int64_t{1} << 18;

// As SamplerOptions.
struct SampleOptions {
  float temperature = 0.8f;
  int top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  float repeat_penalty = 1;
  int repeat_last_n = -1;

  bool operator==(const SampleOptions&) const = default;
};

// What a sequence's sampler remembers, on the device, so that recorded launches can be replayed.
struct SampleState {
  uint64_t* random = nullptr;  // [m] SplitMix64 states: the seed at first, as Random(seed)
  int32_t* history = nullptr;  // [m][history_stride], null: no penalty and nothing is appended
  int32_t* lengths = nullptr;  // [m]
  int64_t history_stride = 0;
};

// Where the batch is described (RowPlaces and its tokens): what is chosen becomes the next batch,
// row i of it the position behind that of row `from` + i.
struct NextBatch {
  int32_t* tokens = nullptr;
  int32_t* positions = nullptr;
  int32_t* sequences = nullptr;
  int64_t from = 0;
};

struct SampleCall {
  const float* logits = nullptr;  // [m][ldl]
  int64_t ldl = 0;
  int64_t vocab = 0;
  int64_t m = 0;
  SampleState state;
  int32_t* next = nullptr;  // [m]; -1 where no logit is finite
  int32_t* host = nullptr;  // the same in pinned memory of the host, or null
  NextBatch batch;          // or nothing
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

// Chooses next[t] for every row, advances the random states by one draw (not with temperature 0)
// and appends the tokens to the histories, while they have room. The token is the CPU sampler's for
// the same random state, unless the drawn point is within about 1e-12 of the border between two
// tokens (sums of weights are rounded to 2^-44 of the best one's) or a probability equals top_p to
// as many digits. Options are checked by the caller (check_sampler_options); throws internal for a
// vocabulary beyond kMaxSampledVocab.
void sample(const SampleCall& call, const SampleOptions& options, const SampleScratch& scratch,
            Stream stream);

}  // namespace walsh::cuda
