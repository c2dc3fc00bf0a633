#include "generate/sampling_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "generate/sampler.h"

namespace walsh {
namespace {

using G = GenerationOptions;
using S = SamplerOptions;
using Float = SamplingOption::Number<float>;
using Int = SamplingOption::Number<int>;

constexpr int kMost = 1 << 30;  // it limits options that count tokens

std::vector<SamplingOption> make_options() {
  return {
      {.name = "temperature",
       .member = Float{&G::temperature, &S::temperature},
       .flags = "--temp,--temperature",
       .most = 1000,
       .apis = "chat, responses, messages",
       .key = "temperature",
       .devices = true,
       .help = "Randomness; 0: always the best token"},
      {.name = "dynatemp_range",
       .member = Float{&G::dynatemp_range, &S::dynatemp_range},
       .flags = "--dynatemp-range",
       .most = 1000,
       .help =
           "The temperature varies by this much, with the entropy of the tokens; 0: it is fixed"},
      {.name = "dynatemp_exponent",
       .member = Float{&G::dynatemp_exponent, &S::dynatemp_exponent},
       .flags = "--dynatemp-exp",
       .most = 100,
       .needs = "dynatemp_range",
       .help = "Power of the entropy's share of its maximum by which that temperature grows"},
      {.name = "top_k",
       .member = Int{&G::top_k, &S::top_k},
       .flags = "--top-k",
       .least = -1,
       .most = kMost,
       .apis = "messages",
       .key = "top_k",
       .devices = true,
       .help = "Keep the k best tokens; 0 and -1: all"},
      {.name = "top_p",
       .member = Float{&G::top_p, &S::top_p},
       .flags = "--top-p",
       .most = 1,
       .apis = "chat, responses, messages",
       .key = "top_p",
       .devices = true,
       .help = "Keep the fewest tokens with this total probability; 1: all"},
      {.name = "min_p",
       .member = Float{&G::min_p, &S::min_p},
       .flags = "--min-p",
       .most = 1,
       .key = "min_p",
       .devices = true,
       .help = "Keep tokens with at least this share of the best one's probability; 0: all"},
      {.name = "repeat_penalty",
       .member = Float{&G::repeat_penalty, &S::repeat_penalty},
       .other_names = {"repetition_penalty"},
       .flags = "--repeat-penalty,--repetition-penalty",
       .least = 1e-6,
       .most = 1000,
       .key = "repetition_penalty",
       .devices = true,
       .help = "Divides the positive logits of earlier tokens, also of the prompt; 1: none"},
      {.name = "repeat_last_n",
       .member = Int{&G::repeat_last_n, &S::repeat_last_n},
       .flags = "--repeat-last-n",
       .least = -1,
       .most = kMost,
       .devices = true,
       .help = "Latest tokens that repeat_penalty covers; 0: none, -1: all"},
      {.name = "presence_penalty",
       .member = Float{&G::presence_penalty, &S::presence_penalty},
       .flags = "--presence-penalty",
       .least = -100,
       .most = 100,
       .apis = "chat",
       .help = "Subtracted from the logits of generated tokens, once"},
      {.name = "frequency_penalty",
       .member = Float{&G::frequency_penalty, &S::frequency_penalty},
       .flags = "--frequency-penalty",
       .least = -100,
       .most = 100,
       .apis = "chat",
       .help = "Subtracted from the logits of generated tokens, once per occurrence"},
      {.name = "typical_p",
       .member = Float{&G::typical_p, &S::typical_p},
       .flags = "--typical,--typical-p",
       .most = 1,
       .key = "typical_p",
       .help = "Keep the most typical tokens with this total probability; 1: all"},
      {.name = "top_n_sigma",
       .member = Float{&G::top_n_sigma, &S::top_n_sigma},
       .flags = "--top-nsigma,--top-n-sigma",
       .least = -1,
       .most = 1000,
       .help = "Keep tokens within so many standard deviations of the best logit; -1 and 0: all"},
      {.name = "xtc_probability",
       .member = Float{&G::xtc_probability, &S::xtc_probability},
       .flags = "--xtc-probability",
       .most = 1,
       .help = "How often all tokens above xtc_threshold except the least probable are dropped; 0: "
               "never"},
      {.name = "xtc_threshold",
       .member = Float{&G::xtc_threshold, &S::xtc_threshold},
       .flags = "--xtc-threshold",
       .most = 1,
       .needs = "xtc_probability",
       .help = "The least probability of the tokens that xtc_probability may drop"},
      {.name = "dry_multiplier",
       .member = Float{&G::dry_multiplier, &S::dry_multiplier},
       .flags = "--dry-multiplier",
       .most = 1000,
       .help = "Penalty for continuing a repeated sequence; 0: none"},
      {.name = "dry_base",
       .member = Float{&G::dry_base, &S::dry_base},
       .flags = "--dry-base",
       .least = 1,
       .most = 1000,
       .needs = "dry_multiplier",
       .help = "Growth of that penalty per token of the sequence"},
      {.name = "dry_allowed_length",
       .member = Int{&G::dry_allowed_length, &S::dry_allowed_length},
       .flags = "--dry-allowed-length",
       .least = 1,
       .most = kMost,
       .needs = "dry_multiplier",
       .help = "Sequences of up to this many tokens may be repeated"},
      {.name = "dry_penalty_last_n",
       .member = Int{&G::dry_penalty_last_n, &S::dry_penalty_last_n},
       .flags = "--dry-penalty-last-n",
       .least = -1,
       .most = kMost,
       .needs = "dry_multiplier",
       .help = "Latest tokens in which repetitions are looked for; 0: none, -1: all"},
      {.name = "dry_sequence_breakers",
       .member = &G::dry_sequence_breakers,
       .flags = "--dry-sequence-breaker",
       .needs = "dry_multiplier",
       .help = "Texts that end a sequence; the flag once for each of them; none alone: no text"},
      {.name = "samplers",
       .member = &G::samplers,
       .flags = "--samplers",
       .help = "The sampling steps in their order; a step that is not named is skipped"},
      {.name = "logit_bias",
       .member = &G::logit_bias,
       .flags = "--logit-bias",
       .least = -100,
       .most = 100,
       .apis = "chat",
       .help =
           "Added to the logits of tokens, by their ids; as a flag 15043+1 or 15043-inf, once for "
           "each"},
      {.name = "seed",
       .member = &G::seed,
       .flags = "-s,--seed",
       .apis = "chat",
       .devices = true,
       .help = "The same seed gives the same text again"},
      {.name = "ignore_eos",
       .member = &G::ignore_eos,
       .flags = "--ignore-eos",
       .devices = true,
       .help = "Continue after the token that ends a text"},
  };
}

template <typename T>
constexpr bool is_number = std::is_same_v<T, Float> || std::is_same_v<T, Int>;

}  // namespace

std::span<const SamplingOption> sampling_options() {
  static const std::vector<SamplingOption> options = make_options();
  return options;
}

std::vector<const char*> SamplingOption::names() const {
  std::vector<const char*> all = {name};
  all.insert(all.end(), other_names.begin(), other_names.end());
  return all;
}

const SamplingOption* find_sampling_option(std::string_view name) {
  for (const SamplingOption& option : sampling_options())
    for (const char* known : option.names())
      if (name == known) return &option;
  return nullptr;
}

bool on_devices(const SamplerOptions& options) {
  const SamplerOptions defaults;
  const auto has = [&](const SamplingOption& option) {
    if (option.devices || option.needs != nullptr) return true;
    return std::visit(
        [&](auto member) {
          if constexpr (is_number<decltype(member)>)
            return options.*member.decided == defaults.*member.decided;
          return true;
        },
        option.member);
  };
  return options.steps == kSamplerSteps && options.order == defaults.order &&
         std::all_of(sampling_options().begin(), sampling_options().end(), has);
}

std::string default_text(const SamplingOption& option) {
  return std::visit(
      [&](auto member) -> std::string {
        using T = decltype(member);
        if constexpr (is_number<T>) return fmt::format("{}", SamplerOptions().*member.decided);
        if constexpr (std::is_same_v<T, SamplingOption::Seed>) return "random";
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
          return "a whole number of at least 0; -1: random";
        if constexpr (std::is_same_v<T, SamplingOption::Flag>) return "true, false";
        if constexpr (std::is_same_v<T, SamplingOption::Steps>) return "a list of steps";
        if constexpr (std::is_same_v<T, SamplingOption::Texts>) return "a list of texts";
        return fmt::format("for each token {} to {}", option.least, option.most);
      },
      option.member);
}

}  // namespace walsh
