#include "cli/sampling_options.h"

#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr const char* kGroup = "Sampling (default: the model's own)";

// "15043+1.5" or "15043-inf", as llama.cpp has it.
std::pair<int32_t, float> parse_bias(const std::string& text) {
  std::pair<int32_t, float> bias;
  const char* const end = text.data() + text.size();
  const auto [sign, wrong] = std::from_chars(text.data(), end, bias.first);
  if (wrong == std::errc() && sign != end && (*sign == '+' || *sign == '-')) {
    const auto [rest, failed] = std::from_chars(*sign == '+' ? sign + 1 : sign, end, bias.second);
    if (failed == std::errc() && rest == end && !std::isnan(bias.second)) return bias;
  }
  throw CLI::ValidationError("--logit-bias", text + " is no token with a bias, as 15043+1");
}

// The parser would take a negative number for another one, and the largest seed for a larger one.
std::string seed_problem(const std::string& text) {
  if (text.starts_with('-')) return "a seed is not negative";
  uint64_t seed = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), seed);
  return read.ec == std::errc::result_out_of_range ? "a seed has 64 bits at most" : "";
}

}  // namespace

void add_sampling_options(CLI::App& command, GenerationOptions& options) {
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return command.add_option(name, value, text)->group(kGroup);
  };
  add("--temp,--temperature", options.temperature,
      "Temperature; 0: always the best token [else 0.8]");
  add("--top-k", options.top_k, "Only the k best tokens; 0: all [else 40]");
  add("--top-p", options.top_p, "Only the best tokens with this probability; 1: all [else 0.95]");
  add("--min-p", options.min_p,
      "Only tokens with this share of the best one's probability; 0: all [else 0.05]");
  add("--repeat-penalty", options.repeat_penalty, "1: none [else 1]");
  add("--presence-penalty", options.presence_penalty,
      "Taken from the logits of tokens that were generated");
  add("--frequency-penalty", options.frequency_penalty, "The same for each time");
  add("--typical,--typical-p", options.typical_p,
      "Only the tokens with this probability whose surprise is usual; 1: all [else 1]");
  add("--top-nsigma,--top-n-sigma", options.top_n_sigma,
      "Only tokens within so many standard deviations of the best logit; -1: all");
  add("--xtc-probability", options.xtc_probability,
      "How often all tokens above the threshold but the last of them are dropped");
  add("--xtc-threshold", options.xtc_threshold, "Least probability of those");
  add("--dry-multiplier", options.dry_multiplier,
      "Penalty for going on with a sequence that was there before; 0: none");
  add("--dry-base", options.dry_base, "Its growth with each token of the sequence");
  add("--dry-allowed-length", options.dry_allowed_length, "Sequences up to it may repeat");
  add("--dry-penalty-last-n", options.dry_penalty_last_n,
      "Latest tokens that it looks at; 0: none, -1: all");
  add("--dry-sequence-breaker", options.dry_sequence_breakers,
      "Text over which no sequence goes, instead of line feed, colon, quote and asterisk; several "
      "times; none: no text does");
  add("--samplers", options.samplers,
      "Steps and their order [penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature]");
  add("--repeat-last-n", options.repeat_last_n,
      "Latest tokens that the penalty is for, with those of the prompt; 0: none, -1: all [-1]");
  add("-s,--seed", options.seed, "Seed [drawn]")->check(seed_problem);
}

void add_generation_options(CLI::App& command, GenerationOptions& options) {
  command
      .add_option("-n,--predict,--n-predict", options.max_tokens,
                  "Tokens to generate; 0: none, the prompt is only evaluated; -1: until the end")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40));
  add_sampling_options(command, options);
  command
      .add_option_function<std::vector<std::string>>(
          "--logit-bias",
          [&options](const std::vector<std::string>& all) {
            options.logit_bias.clear();
            for (const std::string& one : all)
              options.logit_bias.push_back(parse_bias(one));
          },
          "Added to the logit of a token, by its number, as 15043+1 or 15043-inf; several times")
      ->type_name("TOKEN+BIAS")
      ->group(kGroup);
}

void set_generation_option(GenerationOptions& options, const std::string& name,
                           const std::string& value) {
  GenerationOptions changed = options;
  CLI::App flags("settings");
  flags.set_help_flag();
  add_generation_options(flags, changed);
  const std::string flag = (name.size() == 1 ? "-" : "--") + name;
  const CLI::Option* known =
      name.empty() || name[0] == '-' ? nullptr : flags.get_option_no_throw(flag);
  if (known == nullptr) throw Error(ErrorCode::usage, "/set", "there is no setting '" + name + "'");
  try {
    flags.parse(std::vector<std::string>{value, flag});  // the last one first
  } catch (const CLI::ParseError& e) {
    throw Error(ErrorCode::usage, "/set", e.what());
  }
  options = changed;
}

}  // namespace walsh::cli
