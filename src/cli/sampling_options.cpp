#include "cli/sampling_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "generate/sampling_options.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr const char* kGroup = "Sampling (defaults are the model's own, else those in brackets)";

// Parses "15043+1.5" or "15043-inf", llama.cpp's notation.
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

// Reads a seed from its text, because the parser wraps negative numbers and saturates large ones.
// -1 means a seed that is drawn, as in llama.cpp.
std::optional<uint64_t> parse_seed(const std::string& text) {
  if (text == "-1") return std::nullopt;
  uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, seed);
  if (read.ec == std::errc() && read.ptr == end) return seed;
  throw CLI::ValidationError("--seed", text + " is no whole number of 64 bits; -1: random");
}

// Adds the flag of a row, which sets `value`.
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
  const auto set = [&value](const std::string& seed) { value = parse_seed(seed); };
  return command.add_option_function<std::string>(row.flags, set, text)->type_name("UINT");
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
    // CLI11 takes arguments in reverse order.
    flags.parse(std::vector<std::string>{value, flag});
  } catch (const CLI::ParseError& e) {
    throw Error(ErrorCode::usage, "/set", problem_text(e));
  }
  options = changed;
}

}  // namespace walsh::cli
