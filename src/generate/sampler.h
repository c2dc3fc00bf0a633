// Samples the next token from the logits by the steps of llama.cpp's chain
// (kernels/sampler_options.h) in the requested order.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "generate/dry.h"
#include "kernels/sampler_options.h"

namespace walsh {

// Throws usage naming an option that is out of range.
void check_sampler_options(const SamplerOptions& options);

// Returns the names of the steps in their order.
std::vector<std::string> sampler_steps(const SamplerOptions& options);

// Sets the steps and their order from llama.cpp's notation, "penalties;top_k;temperature". Steps
// that are not named are skipped. Throws usage for an unknown or repeated name.
void set_sampler_order(SamplerOptions& options, std::string_view names);
// Returns the steps in the same notation.
std::string sampler_order(const SamplerOptions& options);

// Returns the options for a sampler that continues after one that has drawn `draws` tokens.
SamplerOptions after_draws(SamplerOptions options, int64_t draws);

struct TokenBias {
  int32_t token = 0;
  float bias = 0;
};

class Sampler {
 public:
  // DRY uses `breakers`; null means that there are none.
  explicit Sampler(const SamplerOptions& options, std::vector<TokenBias> biases = {},
                   std::shared_ptr<const SequenceBreakers> breakers = nullptr);

  // Records a token of the prompt, for the repeat penalty and DRY.
  void read(int32_t token);
  // Records a token that was sampled, for all penalties.
  void accept(int32_t token);
  // Samples a token. NaN counts as minus infinity; a logit of plus infinity is always chosen (the
  // lowest id of several). Throws bad_input if no logit is finite.
  int32_t sample(std::span<const float> logits);

  struct Steps;  // sampler.cpp defines what each step does

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };

  template <class Change>
  void change_logits(const std::unordered_map<int32_t, int64_t>& tokens, const Change& change);
  void sort(size_t most);
  void sort_some(size_t place);
  double weigh_all() const;
  // Computes the probabilities of the remaining candidates, which it sorts; returns their sum.
  double weigh();
  int32_t draw();

  SamplerOptions options_;
  // Exactly one number of each is drawn per token, so that after_draws() can skip them.
  Random random_, xtc_random_;
  std::deque<int32_t> recent_;  // it has the last repeat_last_n tokens, if the window is limited
  // These count the tokens that the repeat penalty applies to.
  std::unordered_map<int32_t, int64_t> counts_;
  // These count the sampled tokens, if a penalty needs that.
  std::unordered_map<int32_t, int64_t> chosen_;
  std::vector<TokenBias> biases_;
  DryHistory dry_;
  std::vector<Candidate> candidates_;
  size_t sorted_ = 0;       // this many leading candidates are sorted, best first
  bool by_id_ = true;       // candidate i is token i
  double temperature_ = 1;  // Logits are divided by it; 0 leaves only the best candidate.
  std::vector<double> weights_;
};

}  // namespace walsh
