// Holds sampling options, common to all devices, with llama.cpp's meaning.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace walsh {

// These are the sampling steps, by llama.cpp's names, numbered in their default order. A new step
// goes before temperature, which is the last one.
enum class SamplerStep : uint8_t {
  penalties,
  dry,
  top_n_sigma,
  top_k,
  typical_p,
  top_p,
  min_p,
  xtc,
  temperature,
};
inline constexpr int kSamplerSteps = static_cast<int>(SamplerStep::temperature) + 1;
using SamplerOrder = std::array<SamplerStep, kSamplerSteps>;

constexpr SamplerOrder default_sampler_order() {
  SamplerOrder order = {};
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<SamplerStep>(i);
  return order;
}

// Tokens are sampled by these values. Devices that sample have some of them only
// (generate/sampling_options.h).
struct SamplerOptions {
  float temperature = 0.8f;  // 0: the best token (of equal ones the lowest id)
  // The dynamic temperature is between temperature - range and + range, growing with the entropy's
  // share of its maximum to the power of the exponent; range 0: off.
  float dynatemp_range = 0, dynatemp_exponent = 1;
  int top_k = 40;            // keep the k best tokens; 0: all
  float top_p = 0.95f;       // keep the fewest tokens with this total probability; 1: all
  float min_p = 0.05f;       // keep tokens with this share of the best one's probability; 0: all
  float repeat_penalty = 1;  // divides positive logits of earlier tokens; 1: off
  int repeat_last_n = -1;    // recent tokens that it covers; 0: none, -1: all
  // Logits of generated tokens lose this: presence once, frequency per occurrence.
  float presence_penalty = 0, frequency_penalty = 0;
  // Keeps the fewest tokens with this total probability whose surprise is closest to the expected
  // one; 1: all.
  float typical_p = 1;
  // Keeps tokens whose logits are within this many standard deviations of the best; <= 0: all.
  float top_n_sigma = -1;
  // With this probability, a step removes all tokens of at least the threshold's probability except
  // the least probable of them; 0: never.
  float xtc_probability = 0, xtc_threshold = 0.1f;
  // With DRY, a token that would extend a repeated sequence loses multiplier * base^(length -
  // allowed_length); multiplier 0: off. Repetitions are looked for in the last last_n tokens; 0:
  // none, -1: all.
  float dry_multiplier = 0, dry_base = 1.75f;
  int dry_allowed_length = 2, dry_penalty_last_n = -1;
  SamplerOrder order = default_sampler_order();  // the first `steps` of these are run
  int steps = kSamplerSteps;
  uint64_t seed = 42;
};

}  // namespace walsh
