// Holds sampling options, which all devices share, with llama.cpp's meaning.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace walsh {

// Names the steps of sampling as llama.cpp does, numbered in their default order. A new step goes
// before temperature, which is the last one.
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

// Says how tokens are sampled. Devices that sample support only some of these
// (generate/sampling_options.h).
struct SamplerOptions {
  float temperature = 0.8f;  // With 0 the best token is taken (of equal ones the lowest id).
  // The dynamic temperature is between temperature - range and temperature + range. It grows with
  // the entropy's share of its maximum to the power of the exponent. Range 0: off.
  float dynatemp_range = 0, dynatemp_exponent = 1;
  int top_k = 40;       // The k best tokens are kept; 0: all.
  float top_p = 0.95f;  // The fewest tokens with this total probability are kept; 1: all.
  // Tokens with this share of the best one's probability are kept; 0: all.
  float min_p = 0.05f;
  float repeat_penalty = 1;  // It divides positive logits of earlier tokens; 1: off.
  int repeat_last_n = -1;    // The penalty covers this many recent tokens; 0: none, -1: all.
  // Logits of generated tokens lose this: presence once, frequency once per occurrence.
  float presence_penalty = 0, frequency_penalty = 0;
  // Keeps the fewest tokens with this total probability whose surprise is closest to the expected
  // one; 1: all.
  float typical_p = 1;
  // Keeps tokens whose logits are within this many standard deviations of the best; <= 0: all.
  float top_n_sigma = -1;
  // With this probability, a step removes all tokens of at least the threshold's probability except
  // the least probable of them; 0: never.
  float xtc_probability = 0, xtc_threshold = 0.1f;
  // DRY takes multiplier * base^(length - allowed_length) from a token that would extend a repeated
  // sequence; multiplier 0: off. Repetitions are looked for in the last last_n tokens; 0: none, -1:
  // all.
  float dry_multiplier = 0, dry_base = 1.75f;
  int dry_allowed_length = 2, dry_penalty_last_n = -1;
  SamplerOrder order = default_sampler_order();  // The first `steps` of these are run.
  int steps = kSamplerSteps;
  uint64_t seed = 42;
};

}  // namespace walsh
