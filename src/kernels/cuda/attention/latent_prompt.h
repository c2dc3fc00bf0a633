// Attends from prompts to a cache of latents. A latent is multiplied with the parts of k and v that
// the heads have, once for all rows of a prompt, and the prefill kernel reads the keys and values
// that this gives: for many rows that is less work than queries and results as long as a latent,
// which single tokens have (attend_latents). FlashMLA and vLLM divide the two in the same way.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/cuda/attention/attention.h"

namespace walsh::cuda {

// Holds device memory for keys and values of heads of one sequence: of as many heads as a limit
// allows, but at least of as many as are worth a launch.
class HeadScratch {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;
  static constexpr int64_t kFewHeads = 4;  // for which there is room in any case

  HeadScratch() = default;
  // Has room for sequences of up to `capacity` positions.
  HeadScratch(int64_t capacity, int heads, int key_dim, int value_dim,
              uint64_t most_bytes = kMostBytes);

  bool present() const { return head_pages_ > 0; }
  // Returns how many heads there is room for with their first `positions` positions, at least one.
  int heads_of(int64_t positions) const;
  uint16_t* keys() const { return keys_.as<uint16_t>(); }
  uint16_t* values() const { return values_.as<uint16_t>(); }
  int32_t* pages() const { return pages_.as<int32_t>(); }

 private:
  int64_t head_pages_ = 0;  // pages times heads
  Buffer keys_, values_;    // [page][heads][kPageTokens][dim]
  Buffer pages_;            // their table
};

// A head of a query has key_dim values, first those for the shared key; its result has value_dim
// values.
struct LatentPrompt : AttentionCall {
  int key_dim = 0, value_dim = 0;
  DType key_type = DType::f16, value_type = DType::f16;  // of the parts, which are plain numbers
  const void* key_parts = nullptr;                       // [heads][rank][key_dim - shared key]
  const void* value_parts = nullptr;                     // [heads][value_dim][rank]
  int64_t end = 0;                                       // the position behind the last row's
};

// Returns whether attend_latent_prompt takes such heads, with `shared_key` values of a shared key.
bool takes_prompts(int64_t shared_key, int64_t key_dim, int64_t value_dim);

// Attends as attend_prefill does. Keys and values of heads are rounded to fp16.
void attend_latent_prompt(const LatentPrompt& call, const HeadScratch& scratch, Stream stream);

}  // namespace walsh::cuda
