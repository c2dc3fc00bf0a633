#include "cli/command_tree.h"

#include <fmt/format.h>

#include <utility>

#include "base/cpu.h"
#include "codec/format.h"

namespace walsh::cli {
namespace {

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Format* format : listed_formats())
    names.emplace_back(listed_name(*format));
  return names;
}

// Returns the values of a flag, if they are known.
std::vector<std::string> choices_of(const Flag& flag) {
  if (!flag.choices.empty()) return flag.choices;
  if (flag.value.find('|') != std::string::npos) return split(flag.value, '|');
  if (flag.value == "TYPE" || flag.value == "TYPES") return format_names();
  if (flag.value == "DEVICE") return {"auto", "cpu", "cuda"};
  if (flag.value != "ISA") return {};
  std::vector<std::string> names;
  for (const Isa isa : supported_isas())
    names.emplace_back(isa_name(isa));
  return names;
}

std::vector<std::string> dashed_names(const Flag& flag) {
  std::vector<std::string> names = flag.shorts;
  names.insert(names.end(), flag.longs.begin(), flag.longs.end());
  return names;
}

FlagDescription describe(const Flag& flag) {
  const bool positional = !flag.positions.empty();
  return {
      .names = positional ? flag.positions : dashed_names(flag),
      .positional = positional,
      .required = flag.required,
      .takes_value = !flag.value.empty(),
      .repeats = flag.several,
      .takes_file = positional || flag.value == "FILE" || flag.value == "DIR",
      .value = flag.choices.empty() ? flag.value : fmt::format("{}", fmt::join(flag.choices, "|")),
      .choices = choices_of(flag),
      .initial = flag.initial,
      .help = flag.help,
      .group = flag.group,
      .environment = flag.variable};
}

}  // namespace

CommandDescription describe(const Command& command) {
  CommandDescription described{command.name, command.help, command.footer, {}};
  for (const Flag& flag : command.flags) {
    const FlagDescription one = describe(flag);
    described.flags.push_back(one);
    if (!one.positional || flag.longs.empty()) continue;
    // A positional argument that can also be given as a flag is listed as both; neither is
    // required.
    FlagDescription other = one;
    other.positional = other.required = false;
    other.names = dashed_names(flag);
    other.value = one.names.front();
    described.flags.push_back(std::move(other));
  }
  return described;
}

std::vector<CommandDescription> describe_commands(const Command& program) {
  std::vector<CommandDescription> commands = {describe(program)};
  for (const Command& command : program.commands)
    commands.push_back(describe(command));
  return commands;
}

}  // namespace walsh::cli
