#include "cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "cli/help.h"
#include "cli/other_flags.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

// llama.cpp has these long flags with one dash, which CLI11 does not support.
constexpr const char* kLong[] = {"-ctk", "-ctv", "-cnv",   "-no-cnv", "-sys",
                                 "-st",  "-ngl", "-ncmoe", "-np"};

bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

bool has_one_dash(const std::string& argument) {
  return argument.size() > 1 && argument[0] == '-' && argument[1] != '-';
}

std::string name_of(const std::string& argument) {
  return argument.substr(0, argument.find('='));
}

// Returns the flag's name with two dashes, if the command has it.
std::string long_form(const CLI::App& command, const std::string& argument) {
  const std::string name = name_of(argument);
  if (std::find(std::begin(kLong), std::end(kLong), name) != std::end(kLong)) return "-" + argument;
  if (name.size() > 2 && is_letter(name[1]) && is_letter(name[2]))
    throw Error(ErrorCode::usage, "command line",
                no_such_flag(command, name) + " (write a value after a space)");
  return argument;
}

const CLI::App* subcommand(const CLI::App& root, const std::string& name) {
  const auto all = root.get_subcommands([&](const CLI::App* a) { return a->get_name() == name; });
  return all.empty() ? nullptr : all.front();
}

// Turns "help COMMAND" into "COMMAND --help".
void ask_for_help(const CLI::App& root, std::vector<std::string>& all) {
  if (all.empty() || all[0] != "help") return;
  if (all.size() > 1 && !all[1].starts_with('-') && subcommand(root, all[1]) == nullptr)
    throw Error(ErrorCode::usage, "command line", no_such_command(root, all[1]));
  const bool names_one = all.size() > 1 && !all[1].starts_with('-') && all[1] != "help";
  all = names_one ? std::vector<std::string>{all[1], "--help"} : std::vector<std::string>{"--help"};
}

// Refuses an empty value, as from "$UNSET", which would be taken for no flag at all. Only texts may
// be empty, and the name of the history, which is not kept then.
void refuse_empty(const CLI::Option& option, const std::string& value) {
  const bool may_be_empty =
      option.get_type_name().starts_with("TEXT") || option.check_lname("history");
  if (value.empty() && !may_be_empty)
    throw Error(ErrorCode::usage, "command line", option.get_name() + ": a value is needed");
}

// Returns whether an option takes several arguments without a flag, as the models of `walsh serve
// MODEL...` are given.
bool takes_several_positions(const CLI::Option& option) {
  return option.get_positional() && option.get_items_expected_max() > 1;
}

}  // namespace

void limit_to_one_value(CLI::App& command) {
  for (CLI::Option* option : command.get_options())
    if (option->nonpositional() && !takes_several_positions(*option))
      option->allow_extra_args(false);
}

Arguments parser_arguments(const CLI::App& root, int argc, const char* const* argv) {
  std::vector<std::string> all(argv + std::min(argc, 1), argv + argc);
  ask_for_help(root, all);
  std::vector<std::string> notes;
  const CLI::App* command = &root;
  if (const CLI::App* first = all.empty() ? nullptr : subcommand(root, all[0]);
      first != nullptr && first->get_option_no_throw("--device") != nullptr)
    notes = take_other_flags(*first, 1, all);
  for (size_t i = 0; i < all.size() && all[i] != "--"; ++i) {
    if (!all[i].starts_with('-')) {
      if (const CLI::App* chosen = command == &root ? subcommand(root, all[i]) : nullptr)
        command = chosen;
      continue;
    }
    if (has_one_dash(all[i])) all[i] = long_form(*command, all[i]);
    const bool has_value = all[i].find('=') != std::string::npos;
    const CLI::Option* option = command->get_option_no_throw(name_of(all[i]));
    if (option == nullptr || option->get_items_expected_min() == 0) continue;
    if (has_value) {
      refuse_empty(*option, all[i].substr(all[i].find('=') + 1));
    } else if (++i < all.size()) {
      refuse_empty(*option, all[i]);
    }
  }
  std::reverse(all.begin(), all.end());
  return {std::move(all), std::move(notes)};
}

namespace {

// CLI11 words these so: "--port: Value x not in range 0 to 9" ("[0 - 9]" since version 2.4) and
// "--group: x not in {64,32}".
std::string refused_value(const std::string& text) {
  constexpr std::string_view kValue = ": Value ", kRange = " not in range ", kSet = " not in {";
  const size_t colon = text.find(kValue), range = text.rfind(kRange), set = text.rfind(kSet);
  if (colon != text.npos && range != text.npos && colon < range) {
    std::string limits = text.substr(range + kRange.size());
    if (limits.starts_with('[') && limits.ends_with(']')) {
      limits = limits.substr(1, limits.size() - 2);
      if (const size_t dash = limits.find(" - "); dash != limits.npos)
        limits.replace(dash, 3, " to ");
    }
    const size_t value = colon + kValue.size();
    return fmt::format("{}: {} is not a number from {}", text.substr(0, colon),
                       text.substr(value, range - value), limits);
  }
  if (set == text.npos || !text.ends_with('}')) return text;
  std::string choices;
  for (const char c : text.substr(set + kSet.size(), text.size() - set - kSet.size() - 1))
    choices += c == ',' ? ", " : std::string(1, c);
  return fmt::format("{} is none of {}", text.substr(0, set), choices);
}

}  // namespace

// CLI11 words these so: "--temp: 1 required FLOAT missing", "--temp: At Most 1 required but
// received 2", "Could not convert: --temp = x".
std::string problem_text(const CLI::ParseError& error) {
  const std::string text = error.what();
  if (text == "--model is required") return "MODEL is required";  // -m is the other way to give it
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const size_t missing = text.find(": 1 required "), many = text.find(": At Most 1 required ");
    if (missing != text.npos) return text.substr(0, missing) + ": a value is needed";
    if (many != text.npos) return text.substr(0, many) + ": is given more than once";
  }
  constexpr std::string_view kConversion = "Could not convert: ";
  const size_t equals = text.find(" = ");
  if (text.starts_with(kConversion) && equals != text.npos)
    return fmt::format("{}: {} is not a number",
                       text.substr(kConversion.size(), equals - kConversion.size()),
                       text.substr(equals + 3));
  return dynamic_cast<const CLI::ValidationError*>(&error) != nullptr ? refused_value(text) : text;
}

std::string unexpected_text(const CLI::App& root) {
  const auto chosen = root.get_subcommands();
  const std::vector<std::string> rest = root.remaining(true);
  if (rest.empty()) return "unexpected argument";
  const std::string& first = rest.front();
  if (first.starts_with('-'))
    return no_such_flag(chosen.empty() ? root : *chosen.front(), name_of(first));
  if (chosen.empty()) return no_such_command(root, first);
  return fmt::format("unexpected argument {}", first);
}

}  // namespace walsh::cli
