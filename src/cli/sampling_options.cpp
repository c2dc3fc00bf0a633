#include "cli/sampling_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/parser.h"
#include "generate/sampling_options.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

[[noreturn]] void refuse(const char* flag, const std::string& problem) {
  throw Error(ErrorCode::usage, "command line", fmt::format("{}: {}", flag, problem));
}

// Parses "15043+1.5" or "15043-inf", llama.cpp's notation.
std::pair<int32_t, float> parse_bias(const std::string& text) {
  std::pair<int32_t, float> bias;
  const char* const end = text.data() + text.size();
  const auto [sign, wrong] = std::from_chars(text.data(), end, bias.first);
  if (wrong == std::errc() && sign != end && (*sign == '+' || *sign == '-')) {
    const auto [rest, failed] = std::from_chars(*sign == '+' ? sign + 1 : sign, end, bias.second);
    if (failed == std::errc() && rest == end && !std::isnan(bias.second)) return bias;
  }
  refuse("--logit-bias", text + " is no token with a bias, as 15043+1");
}

// Reads a seed from its text, because the parser wraps negative numbers and saturates large ones.
// -1 means a seed that is drawn, as in llama.cpp.
std::optional<uint64_t> parse_seed(const std::string& text) {
  if (text == "-1") return std::nullopt;
  uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, seed);
  if (read.ec == std::errc() && read.ptr == end) return seed;
  refuse("--seed", text + " is no whole number of 64 bits; -1: random");
}

// Returns how the values of a flag get to a member of the options.
template <typename T>
Target target_of(T& value) {
  return &value;
}

Target target_of(std::optional<uint64_t>& value) {
  return ReadText([&value](const std::string& seed) { value = parse_seed(seed); });
}

Target target_of(std::vector<std::pair<int32_t, float>>& value) {
  return ReadTexts([&value](const std::vector<std::string>& all) {
    value.clear();
    for (const std::string& one : all)
      value.push_back(parse_bias(one));
  });
}

}  // namespace

void add_sampling_options(Command& command, GenerationOptions& options) {
  const FlagGroup group =
      command.group("Sampling (defaults are the model's own, else those in brackets)");
  for (const SamplingOption& row : sampling_options()) {
    const Target target = std::visit(
        [&](auto member) {
          if constexpr (requires { member.wanted; }) {
            return target_of(options.*member.wanted);
          } else {
            return target_of(options.*member);
          }
        },
        row.member);
    Flag& flag = group.add(row.flags, target, fmt::format("{} [{}]", row.help, default_text(row)));
    if (std::holds_alternative<SamplingOption::Seed>(row.member)) flag.value = "UINT";
    if (std::holds_alternative<SamplingOption::Biases>(row.member)) flag.value = "TOKEN+BIAS";
  }
}

namespace {

// Returns whether the user gave the option.
bool is_given(const GenerationOptions& options, const SamplingOption& row) {
  const GenerationOptions none;
  return std::visit(
      [&](auto member) {
        if constexpr (requires { member.wanted; })
          return (options.*member.wanted).has_value();
        else
          return options.*member != none.*member;
      },
      row.member);
}

// Returns whether other options may depend on this one: it has a number other than the default.
bool is_on(const GenerationOptions& options, const SamplingOption& row) {
  return std::visit(
      [&](auto member) {
        if constexpr (requires { member.wanted; }) {
          const auto preset = SamplerOptions().*member.decided;
          return (options.*member.wanted).value_or(preset) != preset;
        }
        return true;
      },
      row.member);
}

std::string first_flag(const SamplingOption& row) {
  const std::string flags = row.flags;
  return flags.substr(0, flags.find(','));
}

}  // namespace

std::vector<std::string> idle_sampling_flags(const GenerationOptions& options) {
  std::vector<std::string> notes;
  for (const SamplingOption& row : sampling_options()) {
    if (row.needs == nullptr || !is_given(options, row)) continue;
    const SamplingOption& other = *find_sampling_option(row.needs);
    if (!is_on(options, other))
      notes.push_back(
          fmt::format("{} changes nothing: it needs {}", first_flag(row), first_flag(other)));
  }
  return notes;
}

Flag& add_generation_options(Command& command, GenerationOptions& options) {
  Flag& tokens =
      command.add("-n,--predict,--n-predict", &options.max_tokens,
                  "Tokens to generate; 0: none, the prompt is only evaluated; -1: until the end",
                  {.shown = true, .range = between(int64_t{-1}, int64_t{1} << 40)});
  add_sampling_options(command, options);
  return tokens;
}

std::vector<std::string> generation_option_names() {
  Command settings;
  GenerationOptions options;
  add_generation_options(settings, options);
  std::vector<std::string> names;
  for (const Flag& flag : settings.flags)
    for (const std::string& name : flag.longs)
      names.push_back(name.substr(2));
  return names;
}

void set_generation_option(GenerationOptions& options, const std::string& name,
                           const std::string& value) {
  Command settings;
  GenerationOptions changed = options;
  add_generation_options(settings, changed);
  const std::string flag = (name.size() == 1 ? "-" : "--") + name;
  if (name.empty() || name[0] == '-' || settings.find(flag) == nullptr)
    throw Error(ErrorCode::usage, "/set", "there is no setting '" + name + "'");
  try {
    parse(settings, {flag, value});
  } catch (const Error& e) {
    throw Error(e.code(), "/set", e.reason());
  }
  options = changed;
}

}  // namespace walsh::cli
