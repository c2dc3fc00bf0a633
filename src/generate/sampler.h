// Choosing the next token from the logits. The steps and their order are those of llama.cpp's
// default chain: repeat penalty, top-k, top-p, min-p, temperature.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"

namespace walsh {

struct SamplerOptions {
  float temperature = 0.8f;  // 0: always the best token, of equals the lowest id
  int top_k = 40;            // the k best; 0: all
  float top_p = 0.95f;       // the fewest best with this probability together; 1: all
  float min_p = 0.05f;       // at least this share of the best one's probability; 0: all
  float repeat_penalty = 1;  // divides the positive logits of recent tokens; 1: none
  int repeat_last_n = 64;    // tokens that count as recent; 0: none, -1: all
  uint64_t seed = 42;
};

// Throws usage naming the option that is out of range.
void check_sampler_options(const SamplerOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  // Records a token of the prompt or one that was chosen, for the repeat penalty.
  void accept(int32_t token);
  // The next token. A logit that is not a number counts as minus infinity; throws bad_input if no
  // logit is finite.
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
  std::vector<int32_t> history_;
  std::vector<float> logits_;
  std::vector<Candidate> candidates_;  // best first
  std::vector<double> weights_;
};

}  // namespace walsh
