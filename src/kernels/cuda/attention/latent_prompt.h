// Computes attention of prompts to a cache of latents. It multiplies a latent with the heads' parts
// of k and v once for all rows of a prompt, and the prefill kernel reads the keys and values that
// this gives. For many rows that is less work than queries and results as long as a latent, which
// single tokens have (attend_latents). FlashMLA and vLLM divide the two in the same way.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/cuda/attention/attention.h"

namespace walsh::cuda {

// Holds device memory for keys and values of heads of one sequence. It has room for as many heads
// as a limit allows, but at least for as many as are worth a launch.
class HeadScratch {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;
  static constexpr int64_t kFewHeads = 4;  // There is room for this many in any case.

  HeadScratch() = default;
  // Has room for sequences of up to `capacity` positions.
  HeadScratch(int64_t capacity, int heads, int key_dim, int value_dim,
              uint64_t most_bytes = kMostBytes);

  bool present() const { return head_pages_ > 0; }
  // Returns for how many heads there is room with the first `positions` positions, at least one.
  int heads_of(int64_t positions) const;
  uint16_t* keys() const { return keys_.as<uint16_t>(); }
  uint16_t* values() const { return values_.as<uint16_t>(); }
  int32_t* pages() const { return pages_.as<int32_t>(); }

 private:
  int64_t head_pages_ = 0;  // It is the number of pages times heads.
  Buffer keys_, values_;    // Their shape is [page][heads][kPageTokens][dim].
  Buffer pages_;            // This is the page table of keys_ and values_.
};

// Describes the call. A head of a query has key_dim values, first those for the shared key. Its
// result has value_dim values.
struct LatentPrompt : AttentionCall {
  int key_dim = 0, value_dim = 0;
  // These are types of the parts, which are plain numbers.
  DType key_type = DType::f16, value_type = DType::f16;
  // Its shape is [heads][rank][key_dim - shared key].
  const void* key_parts = nullptr;
  const void* value_parts = nullptr;  // Its shape is [heads][value_dim][rank].
  // It is the position after the last row's.
  int64_t end = 0;
};

// Returns whether attend_latent_prompt takes such heads, with `shared_key` values of a shared key.
bool takes_prompts(int64_t shared_key, int64_t key_dim, int64_t value_dim);

// Computes attention as attend_prefill does. Keys and values of heads are rounded to fp16.
void attend_latent_prompt(const LatentPrompt& call, const HeadScratch& scratch, Stream stream);

}  // namespace walsh::cuda
