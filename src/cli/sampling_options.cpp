#include "cli/sampling_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generate/sampling_options.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr const char* kGroup = "Sampling (the default is the model's own, else that in brackets)";

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

// The flag of a row, which sets `value`.
template <typename T>
CLI::Option* add_flag(CLI::App& command, const SamplingOption& row, T& value,
                      const std::string& text) {
  return command.add_option(row.flags, value, text);
}

CLI::Option* add_flag(CLI::App& command, const SamplingOption& row, bool& value,
                      const std::string& text) {
  return command.add_flag(row.flags, value, text);
}

CLI::Option* add_flag(CLI::App& command, const SamplingOption& row, std::optional<uint64_t>& value,
                      const std::string& text) {
  return command.add_option(row.flags, value, text)->check(seed_problem);
}

CLI::Option* add_flag(CLI::App& command, const SamplingOption& row,
                      std::vector<std::pair<int32_t, float>>& value, const std::string& text) {
  const auto set = [&value](const std::vector<std::string>& all) {
    value.clear();
    for (const std::string& one : all)
      value.push_back(parse_bias(one));
  };
  return command.add_option_function<std::vector<std::string>>(row.flags, set, text)
      ->type_name("TOKEN+BIAS");
}

}  // namespace

void add_sampling_options(CLI::App& command, GenerationOptions& options) {
  for (const SamplingOption& row : sampling_options()) {
    const std::string text = fmt::format("{} [{}]", row.help, default_text(row));
    const auto add = [&](auto& value) { add_flag(command, row, value, text)->group(kGroup); };
    std::visit(
        [&](auto member) {
          if constexpr (requires { member.wanted; }) {
            add(options.*member.wanted);
          } else {
            add(options.*member);
          }
        },
        row.member);
  }
}

std::vector<std::string> idle_sampling_flags(const GenerationOptions& options) {
  std::vector<std::string> notes;
  const auto needs = [&](bool given, const char* flag, const std::optional<float>& other,
                         const char* other_flag) {
    if (given && other.value_or(0) == 0)
      notes.push_back(fmt::format("{} changes nothing: it needs {}", flag, other_flag));
  };
  const auto& dry = options.dry_multiplier;
  needs(options.dry_base.has_value(), "--dry-base", dry, "--dry-multiplier");
  needs(options.dry_allowed_length.has_value(), "--dry-allowed-length", dry, "--dry-multiplier");
  needs(options.dry_penalty_last_n.has_value(), "--dry-penalty-last-n", dry, "--dry-multiplier");
  needs(options.dry_sequence_breakers.has_value(), "--dry-sequence-breaker", dry,
        "--dry-multiplier");
  needs(options.xtc_threshold.has_value(), "--xtc-threshold", options.xtc_probability,
        "--xtc-probability");
  return notes;
}

void add_generation_options(CLI::App& command, GenerationOptions& options) {
  command
      .add_option("-n,--predict,--n-predict", options.max_tokens,
                  "Tokens to generate; 0: none, the prompt is only evaluated; -1: until the end")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40));
  add_sampling_options(command, options);
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
