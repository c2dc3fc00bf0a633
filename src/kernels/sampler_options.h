// How the next token is chosen from the logits, on every device: what users know from llama.cpp.
#pragma once

#include <cstdint>

namespace walsh {

struct SamplerOptions {
  float temperature = 0.8f;  // 0: always the best token, of equals the lowest id
  int top_k = 40;            // the k best; 0: all
  float top_p = 0.95f;       // the fewest best with this probability together; 1: all
  float min_p = 0.05f;       // at least this share of the best one's probability; 0: all
  float repeat_penalty = 1;  // divides the positive logits of earlier tokens; 1: none
  int repeat_last_n = -1;    // latest tokens that the penalty is for; 0: none, -1: all
  // Taken from the logits of tokens that were generated: once, and for each time. On the CPU only.
  float presence_penalty = 0, frequency_penalty = 0;
  uint64_t seed = 42;

  // Whether every device can sample so (generate/sampler.h can always).
  bool on_devices() const { return presence_penalty == 0 && frequency_penalty == 0; }
};

}  // namespace walsh
