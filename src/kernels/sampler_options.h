// How the next token is chosen from the logits, on every device: what users know from llama.cpp.
#pragma once

#include <array>
#include <cstdint>

namespace walsh {

// The steps of choosing, by llama.cpp's names. The numbers are their default order.
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
inline constexpr int kSamplerSteps = 9;

struct SamplerOptions {
  float temperature = 0.8f;  // 0: always the best token, of equals the lowest id
  int top_k = 40;            // the k best; 0: all
  float top_p = 0.95f;       // the fewest best with this probability together; 1: all
  float min_p = 0.05f;       // at least this share of the best one's probability; 0: all
  float repeat_penalty = 1;  // divides the positive logits of earlier tokens; 1: none
  int repeat_last_n = -1;    // latest tokens that the penalty is for; 0: none, -1: all
  // The rest on the CPU only.
  // Taken from the logits of tokens that were generated: once, and for each time.
  float presence_penalty = 0, frequency_penalty = 0;
  // The fewest tokens with this probability together whose surprise is nearest to the expected one;
  // 1: all.
  float typical_p = 1;
  // Those whose logits are within so many standard deviations of the best; 0 and less: all.
  float top_n_sigma = -1;
  // With this probability a step drops all tokens that have at least the threshold's probability
  // but the last of them; 0: never.
  float xtc_probability = 0, xtc_threshold = 0.1f;
  // DRY: a token that would continue a sequence that was there before loses
  // multiplier * base^(length - allowed_length); multiplier 0: never. The sequence is looked for in
  // the latest last_n tokens; 0: none, -1: all.
  float dry_multiplier = 0, dry_base = 1.75f;
  int dry_allowed_length = 2, dry_penalty_last_n = -1;
  // The steps that are made, in this order.
  std::array<SamplerStep, kSamplerSteps> order = {
      SamplerStep::penalties, SamplerStep::dry,       SamplerStep::top_n_sigma,
      SamplerStep::top_k,     SamplerStep::typical_p, SamplerStep::top_p,
      SamplerStep::min_p,     SamplerStep::xtc,       SamplerStep::temperature};
  int steps = kSamplerSteps;
  uint64_t seed = 42;

  // Whether every device can sample so (generate/sampler.h can always).
  bool on_devices() const {
    if (presence_penalty != 0 || frequency_penalty != 0 || dry_multiplier != 0 || top_n_sigma > 0 ||
        typical_p < 1 || xtc_probability > 0 || steps != kSamplerSteps)
      return false;
    for (int i = 1; i < steps; ++i)
      if (order[static_cast<size_t>(i)] < order[static_cast<size_t>(i - 1)]) return false;
    return true;
  }
};

}  // namespace walsh
