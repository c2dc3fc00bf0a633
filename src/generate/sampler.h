// Choosing the next token from the logits, by the steps of llama.cpp's chain (kernels/
// sampler_options.h) in the order that is asked for.
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

// Throws usage naming the option that is out of range.
void check_sampler_options(const SamplerOptions& options);

// The names of all steps in their default order.
std::vector<std::string> sampler_steps();

// Sets the steps and their order from llama.cpp's form, "penalties;top_k;temperature". Steps that
// are not named are not made. Throws usage for another name or one that comes twice.
void set_sampler_order(SamplerOptions& options, std::string_view names);
// The same form of the order that is set.
std::string sampler_order(const SamplerOptions& options);

// The same options for a sampler that goes on where one has drawn `draws` tokens.
SamplerOptions after_draws(SamplerOptions options, int64_t draws);

// Is added to the logit of a token.
struct TokenBias {
  int32_t token = 0;
  float bias = 0;
};

class Sampler {
 public:
  // `breakers` are for DRY; null: nothing breaks a sequence.
  explicit Sampler(const SamplerOptions& options, std::vector<TokenBias> biases = {},
                   std::shared_ptr<const SequenceBreakers> breakers = nullptr);

  // Records a token of the prompt, for repeat penalty and DRY.
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

  void apply(SamplerStep step);
  template <class Change>
  void change_logits(const std::unordered_map<int32_t, int64_t>& tokens, const Change& change);
  void penalize();
  void apply_dry();
  void sort(size_t most);
  void sort_some(size_t place);
  double weigh_all() const;
  // Probabilities of the candidates that are left, which are sorted then; their sum.
  double weigh();
  void keep_top_n_sigma();
  void keep_top_k();
  void keep_typical_p();
  void keep_top_p();
  void keep_min_p();
  void exclude_top();
  int32_t draw();

  SamplerOptions options_;
  // One number of each is drawn for every token, so that after_draws() knows where they are.
  Random random_, xtc_random_;
  std::deque<int32_t> recent_;  // the last repeat_last_n tokens, if that is a limit
  std::unordered_map<int32_t, int64_t> counts_;  // of the tokens that the repeat penalty is for
  std::unordered_map<int32_t, int64_t> chosen_;  // of those that were chosen, if it matters
  std::vector<TokenBias> biases_;
  DryHistory dry_;
  // Of the token that is being chosen.
  std::vector<Candidate> candidates_;
  size_t sorted_ = 0;       // of the first candidates, best first
  bool by_id_ = true;       // candidate i is token i
  double temperature_ = 1;  // of the probabilities, 0 only the best one
  std::vector<double> weights_;
};

}  // namespace walsh
