#include "cli/command_line.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "cli/help.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

// llama.cpp has these long flags with one dash, which the parser does not support.
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
std::string long_form(const Command& command, const std::string& argument) {
  const std::string name = name_of(argument);
  if (std::find(std::begin(kLong), std::end(kLong), name) != std::end(kLong)) return "-" + argument;
  if (name.size() > 2 && is_letter(name[1]) && is_letter(name[2]))
    throw Error(ErrorCode::usage, "command line",
                no_such_flag(command, name) + " (write a value after a space)");
  return argument;
}

// Turns "help COMMAND" into "COMMAND --help".
void ask_for_help(const Command& program, std::vector<std::string>& all) {
  if (all.empty() || all[0] != "help") return;
  if (all.size() > 1 && !all[1].starts_with('-') && program.find_command(all[1]) == nullptr)
    throw Error(ErrorCode::usage, "command line", no_such_command(program, all[1]));
  const bool names_one = all.size() > 1 && !all[1].starts_with('-') && all[1] != "help";
  all = names_one ? std::vector<std::string>{all[1], "--help"} : std::vector<std::string>{"--help"};
}

// Refuses an empty value, as from "$UNSET", which would be taken for no flag at all. Only texts may
// be empty, and the name of the history, which is not kept then.
void refuse_empty(const Flag& flag, const std::string& value) {
  const bool may_be_empty = flag.value == "TEXT" || flag.name() == "--history";
  if (value.empty() && !may_be_empty)
    throw Error(ErrorCode::usage, "command line", flag.name() + ": a value is needed");
}

}  // namespace

Arguments parser_arguments(const Command& program, int argc, const char* const* argv) {
  std::vector<std::string> all(argv + std::min(argc, 1), argv + argc);
  ask_for_help(program, all);
  std::vector<std::string> notes;
  const Command* command = &program;
  if (const Command* first = all.empty() ? nullptr : program.find_command(all[0]);
      first != nullptr && first->find("--device") != nullptr)
    notes = take_other_flags(*first, 1, all);
  for (size_t i = 0; i < all.size() && all[i] != "--"; ++i) {
    if (!all[i].starts_with('-')) {
      if (const Command* chosen = command == &program ? program.find_command(all[i]) : nullptr)
        command = chosen;
      continue;
    }
    if (has_one_dash(all[i])) all[i] = long_form(*command, all[i]);
    const bool has_value = all[i].find('=') != std::string::npos;
    const Flag* flag = command->find(name_of(all[i]));
    if (flag == nullptr || flag->value.empty()) continue;
    if (has_value) {
      refuse_empty(*flag, all[i].substr(all[i].find('=') + 1));
    } else if (++i < all.size()) {
      refuse_empty(*flag, all[i]);
    }
  }
  return {std::move(all), std::move(notes)};
}

}  // namespace walsh::cli
