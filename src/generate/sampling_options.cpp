#include "generate/sampling_options.h"

#include <fmt/format.h>

#include <type_traits>

#include "generate/sampler.h"

namespace walsh {
namespace {

using G = GenerationOptions;
using S = SamplerOptions;
using Float = SamplingOption::Number<float>;
using Int = SamplingOption::Number<int>;

constexpr int kMost = 1 << 30;  // limit for options that count tokens

std::vector<SamplingOption> make_options() {
  return {
      {"temperature",
       Float{&G::temperature, &S::temperature},
       {},
       "--temp,--temperature",
       0,
       1000,
       "temperature",
       "Randomness; 0: always the best token"},
      {"top_k",
       Int{&G::top_k, &S::top_k},
       {},
       "--top-k",
       -1,
       kMost,
       "top_k",
       "Keep the k best tokens; 0 and -1: all"},
      {"top_p",
       Float{&G::top_p, &S::top_p},
       {},
       "--top-p",
       0,
       1,
       "top_p",
       "Keep the fewest tokens with this total probability; 1: all"},
      {"min_p",
       Float{&G::min_p, &S::min_p},
       {},
       "--min-p",
       0,
       1,
       "min_p",
       "Keep tokens with at least this share of the best one's probability; 0: all"},
      {"repeat_penalty",
       Float{&G::repeat_penalty, &S::repeat_penalty},
       {"repetition_penalty"},
       "--repeat-penalty,--repetition-penalty",
       1e-6,
       1000,
       "repetition_penalty",
       "Divides the positive logits of earlier tokens, also of the prompt; 1: none"},
      {"repeat_last_n",
       Int{&G::repeat_last_n, &S::repeat_last_n},
       {},
       "--repeat-last-n",
       -1,
       kMost,
       nullptr,
       "Latest tokens that repeat_penalty covers; 0: none, -1: all"},
      {"presence_penalty",
       Float{&G::presence_penalty, &S::presence_penalty},
       {},
       "--presence-penalty",
       -100,
       100,
       nullptr,
       "Subtracted from the logits of generated tokens, once"},
      {"frequency_penalty",
       Float{&G::frequency_penalty, &S::frequency_penalty},
       {},
       "--frequency-penalty",
       -100,
       100,
       nullptr,
       "Subtracted from the logits of generated tokens, once per occurrence"},
      {"typical_p",
       Float{&G::typical_p, &S::typical_p},
       {},
       "--typical,--typical-p",
       0,
       1,
       "typical_p",
       "Keep the most typical tokens with this total probability; 1: all"},
      {"top_n_sigma",
       Float{&G::top_n_sigma, &S::top_n_sigma},
       {},
       "--top-nsigma,--top-n-sigma",
       -1,
       1000,
       nullptr,
       "Keep tokens within so many standard deviations of the best logit; -1 and 0: all"},
      {"xtc_probability",
       Float{&G::xtc_probability, &S::xtc_probability},
       {},
       "--xtc-probability",
       0,
       1,
       nullptr,
       "How often all tokens above xtc_threshold except the least probable are dropped; 0: never"},
      {"xtc_threshold",
       Float{&G::xtc_threshold, &S::xtc_threshold},
       {},
       "--xtc-threshold",
       0,
       1,
       nullptr,
       "The least probability of the tokens that xtc_probability may drop"},
      {"dry_multiplier",
       Float{&G::dry_multiplier, &S::dry_multiplier},
       {},
       "--dry-multiplier",
       0,
       1000,
       nullptr,
       "Penalty for continuing a repeated sequence; 0: none"},
      {"dry_base",
       Float{&G::dry_base, &S::dry_base},
       {},
       "--dry-base",
       1,
       1000,
       nullptr,
       "Growth of that penalty per token of the sequence"},
      {"dry_allowed_length",
       Int{&G::dry_allowed_length, &S::dry_allowed_length},
       {},
       "--dry-allowed-length",
       1,
       kMost,
       nullptr,
       "Sequences of up to this many tokens may be repeated"},
      {"dry_penalty_last_n",
       Int{&G::dry_penalty_last_n, &S::dry_penalty_last_n},
       {},
       "--dry-penalty-last-n",
       -1,
       kMost,
       nullptr,
       "Latest tokens in which repetitions are looked for; 0: none, -1: all"},
      {"dry_sequence_breakers",
       &G::dry_sequence_breakers,
       {},
       "--dry-sequence-breaker",
       0,
       0,
       nullptr,
       "Texts that end a sequence; the flag once for each of them; none alone: no text"},
      {"samplers",
       &G::samplers,
       {},
       "--samplers",
       0,
       0,
       nullptr,
       "The sampling steps in their order; a step that is not named is skipped"},
      {"logit_bias",
       &G::logit_bias,
       {},
       "--logit-bias",
       -100,
       100,
       nullptr,
       "Added to the logits of tokens, by their ids; as a flag 15043+1 or 15043-inf, once for "
       "each"},
      {"seed", &G::seed, {}, "-s,--seed", 0, 0, nullptr, "The same seed gives the same text again"},
      {"ignore_eos",
       &G::ignore_eos,
       {},
       "--ignore-eos",
       0,
       0,
       nullptr,
       "Continue after the token that ends a text"},
  };
}

template <typename T>
constexpr bool is_number = std::is_same_v<T, Float> || std::is_same_v<T, Int>;

}  // namespace

std::span<const SamplingOption> sampling_options() {
  static const std::vector<SamplingOption> options = make_options();
  return options;
}

std::string default_text(const SamplingOption& option) {
  return std::visit(
      [&](auto member) -> std::string {
        using T = decltype(member);
        if constexpr (is_number<T>) return fmt::format("{}", SamplerOptions().*member.decided);
        if constexpr (std::is_same_v<T, SamplingOption::Seed>) return "drawn";
        if constexpr (std::is_same_v<T, SamplingOption::Flag>) return "false";
        if constexpr (std::is_same_v<T, SamplingOption::Steps>)
          return sampler_order(SamplerOptions());
        if constexpr (std::is_same_v<T, SamplingOption::Texts>)
          return "line feed, colon, quotation mark, asterisk";
        return "none";
      },
      option.member);
}

std::string range_text(const SamplingOption& option) {
  return std::visit(
      [&](auto member) -> std::string {
        using T = decltype(member);
        if constexpr (std::is_same_v<T, Float>)
          return fmt::format("{} to {}", option.least, option.most);
        if constexpr (std::is_same_v<T, Int>)
          return fmt::format("a whole number of at least {}", option.least);
        if constexpr (std::is_same_v<T, SamplingOption::Seed>)
          return "a whole number of at least 0";
        if constexpr (std::is_same_v<T, SamplingOption::Flag>) return "true, false";
        if constexpr (std::is_same_v<T, SamplingOption::Steps>) return "a list of steps";
        if constexpr (std::is_same_v<T, SamplingOption::Texts>) return "a list of texts";
        return fmt::format("for each token {} to {}", option.least, option.most);
      },
      option.member);
}

}  // namespace walsh
