#include "cli/parser.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "cli/help.h"
#include "io/printable.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

// Returns the flag's variable, such as WALSH_ARG_API_KEY for --api-key.
std::string variable_of(const std::string& prefix, const std::string& flag) {
  std::string name = prefix + flag;
  for (char& c : name)
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// Returns the value of the flag's variable; empty if unset.
std::string value_of(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value == nullptr ? "" : value;
}

// Makes CLI11's option of a flag that takes values as its target says.
struct OptionOf {
  CLI::App& app;
  const Flag& flag;

  CLI::Option* operator()(Help help) const {
    return help == Help::brief ? app.set_help_flag(flag.names, flag.help)
                               : app.set_help_all_flag(flag.names, flag.help);
  }
  CLI::Option* operator()(bool* to) const { return app.add_flag(flag.names, *to, flag.help); }
  CLI::Option* operator()(std::optional<bool>* to) const {
    const auto set = [to](int64_t times) { *to = times > 0; };
    return app.add_flag_function(flag.names, set, flag.help);
  }
  CLI::Option* operator()(const ReadText& read) const {
    return app.add_option_function<std::string>(flag.names, read, flag.help);
  }
  CLI::Option* operator()(const ReadTexts& read) const {
    return app.add_option_function<std::vector<std::string>>(flag.names, read, flag.help);
  }
  template <typename T>
  CLI::Option* operator()(T* to) const {
    return app.add_option(flag.names, *to, flag.help);
  }
};

CLI::Option* add_option(CLI::App& app, const Flag& flag) {
  CLI::Option* option = std::visit(OptionOf{app, flag}, flag.target);
  option->group(flag.group)->required(flag.required);
  // A flag takes one value each time. Otherwise `--api-key KEY MODEL` would take the MODEL as a
  // second key.
  if (option->nonpositional() && !(flag.several && option->get_positional()))
    option->allow_extra_args(false);
  if (flag.value.empty()) return option;
  option->type_name(flag.value)->default_str(flag.initial);
  if (flag.at_commas) option->delimiter(',');
  if (flag.any_case) {
    option->transform(CLI::IsMember(flag.choices, CLI::ignore_case));
  } else if (!flag.choices.empty()) {
    option->check(CLI::IsMember(flag.choices));
  }
  if (const auto* range = std::get_if<std::pair<int64_t, int64_t>>(&flag.range))
    option->check(CLI::Range(range->first, range->second));
  if (const auto* range = std::get_if<std::pair<double, double>>(&flag.range))
    option->check(CLI::Range(range->first, range->second));
  if (flag.replacement) option->transform(flag.replacement);
  if (flag.problem) option->check(flag.problem, flag.value);
  return option;
}

// Holds CLI11's form of a program with its commands.
class Parser {
 public:
  explicit Parser(Command& program) : program_(program), app_(program.help, "walsh") {
    app_.require_subcommand(0, 1);
    add(program, app_);
    for (Command& command : program.commands)
      add(command, *app_.add_subcommand(command.name, command.help));
    app_.footer(program.footer);  // subcommands would inherit it
  }

  // Takes the arguments and tells the flags which of them were given. Throws what CLI11 throws.
  void parse(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes the last one first
    app_.parse(std::move(arguments));
    for (const auto& [flag, option] : options_)
      flag->times = option->count();
    const CLI::App* app = chosen_app();
    for (Command& command : program_.commands)
      if (app != nullptr && command.name == app->get_name()) note_given(command, *app);
  }

  const Command* chosen() const {
    const CLI::App* app = chosen_app();
    return app == nullptr ? nullptr : program_.find_command(app->get_name());
  }

  std::string full_help(const Command* command) {
    return command == nullptr ? app_.help("", CLI::AppFormatMode::Normal)
                              : app_.get_subcommand(command->name)->help("walsh");
  }

  // Returns which argument belongs to no flag and no command.
  std::string unexpected_text() const {
    const std::vector<std::string> rest = app_.remaining(true);
    if (rest.empty()) return "unexpected argument";
    const std::string& first = rest.front();
    const Command* command = chosen();
    if (first.starts_with('-'))
      return no_such_flag(command == nullptr ? program_ : *command,
                          first.substr(0, first.find('=')));
    return command == nullptr ? no_such_command(program_, first) : "unexpected argument " + first;
  }

 private:
  CLI::App* chosen_app() const {
    const auto all = app_.get_subcommands();
    return all.empty() ? nullptr : all.front();
  }

  void add(Command& command, CLI::App& app) {
    app.footer(command.footer);
    app.set_help_flag();
    const size_t first = options_.size();
    for (Flag& flag : command.flags)
      options_.emplace_back(&flag, add_option(app, flag));
    const auto option_of = [&](const Flag* flag) {
      const auto same = [&](const auto& added) { return added.first == flag; };
      const auto found = std::find_if(options_.begin(), options_.end(), same);
      if (found == options_.end()) throw std::logic_error("a flag of another command");
      return found->second;
    };
    for (size_t i = first; i < options_.size(); ++i) {
      const auto& [flag, option] = options_[i];
      if (flag->needed != nullptr) option->needs(option_of(flag->needed));
      if (flag->excluded != nullptr) option->excludes(option_of(flag->excluded));
    }
    if (!command.variables.empty()) add_variables(command, app, first);
  }

  // Gives every long flag a variable, also aliases. CLI11 supports one variable per option: the
  // first that is set is used. It would apply the value of --no-something to --something, so those
  // are read here and inverted.
  void add_variables(const Command& command, CLI::App& app, size_t first) {
    std::vector<std::function<void()>> inverted;
    for (size_t i = first; i < options_.size(); ++i) {
      const auto& [flag, option] = options_[i];
      flag->variable.clear();
      for (const std::string& name : option->get_lnames()) {
        const std::string variable = variable_of(command.variables, name);
        const std::string value = value_of(variable);
        if (std::holds_alternative<Help>(flag->target) || value.empty()) continue;
        if (option->check_fname(name)) {
          inverted.emplace_back([option = option, name, value] {
            option->add_result(option->get_flag_value(name, value));
          });
        } else if (flag->variable.empty()) {
          flag->variable = variable;
          option->envname(variable);
        }
      }
    }
    app.preparse_callback([inverted = std::move(inverted)](size_t) {
      for (const auto& add : inverted)
        add();
    });
  }

  // Newer versions of CLI11 pass over a variable whose value an option does not take.
  void note_given(Command& command, const CLI::App& app) const {
    const auto flag_of = [&](const CLI::Option* option) {
      const auto same = [&](const auto& added) { return added.second == option; };
      return std::find_if(options_.begin(), options_.end(), same)->first;
    };
    for (const CLI::Option* option : app.parse_order())
      command.given_flags.push_back(flag_of(option));
    for (const CLI::Option* option : app.get_options()) {
      const std::string variable = option->get_envname();
      if (variable.empty() || option->count() > 0) continue;
      throw Error(ErrorCode::usage, variable,
                  fmt::format("{} does not take the value {}", option->get_name(false, true),
                              printable(value_of(variable))));
    }
  }

  Command& program_;
  CLI::App app_;
  std::vector<std::pair<Flag*, CLI::Option*>> options_;
};

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

}  // namespace

Parsed parse(Command& program, std::vector<std::string> arguments) {
  Parser parser(program);
  std::string problem;
  try {
    parser.parse(std::move(arguments));
    return {parser.chosen(), std::nullopt};
  } catch (const CLI::CallForHelp&) {
    return {parser.chosen(), Help::brief};
  } catch (const CLI::CallForAllHelp&) {
    return {parser.chosen(), Help::all};
  } catch (const CLI::ExtrasError& e) {
    problem = program.commands.empty() ? e.what() : parser.unexpected_text();
  } catch (const CLI::ParseError& e) {
    problem = problem_text(e);
  }
  throw Error(ErrorCode::usage, "command line", problem);
}

std::string full_help(Command& program, const Command* command) {
  return Parser(program).full_help(command);
}

}  // namespace walsh::cli
