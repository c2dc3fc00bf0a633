// Choosing the next token from the logits. The steps and their order are those of llama.cpp's
// default chain: repeat penalty, top-k, top-p, min-p, temperature.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "kernels/sampler_options.h"

namespace walsh {

// Throws usage naming the option that is out of range.
void check_sampler_options(const SamplerOptions& options);

// The same options for a sampler that goes on where one has drawn `draws` tokens.
SamplerOptions after_draws(SamplerOptions options, int64_t draws);

// Is added to the logit of a token.
struct TokenBias {
  int32_t token = 0;
  float bias = 0;
};

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options, std::vector<TokenBias> biases = {});

  // Records a token of the prompt, for the repeat penalty.
  void read(int32_t token);
  // Records one that was chosen, for all penalties.
  void accept(int32_t token);
  // The next token. A logit that is not a number counts as minus infinity, plus infinity is chosen
  // (of several the lowest id); throws bad_input if no logit is finite.
  int32_t sample(std::span<const float> logits);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };

  void penalize(std::span<float> logits) const;
  int32_t best(std::span<const float> logits) const;
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  int32_t draw();

  SamplerOptions options_;
  Random random_;
  std::deque<int32_t> recent_;  // the last repeat_last_n tokens, if that is a limit
  std::unordered_map<int32_t, int64_t> counts_;  // of the tokens that the repeat penalty is for
  std::unordered_map<int32_t, int64_t> chosen_;  // of those that were chosen, if it matters
  std::vector<TokenBias> biases_;
  std::vector<float> logits_;
  std::vector<Candidate> candidates_;  // best first
  std::vector<double> weights_;
};

}  // namespace walsh
