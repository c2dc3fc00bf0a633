#include "cli/command_tree.h"

#include <algorithm>
#include <utility>

#include "base/cpu.h"
#include "codec/format.h"

namespace walsh::cli {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Format* format : listed_formats())
    names.emplace_back(listed_name(*format));
  return names;
}

// Returns the choices that the parser's name of a value lists, such as "TEXT:{on,off}", "gguf|hf"
// or TYPE.
std::vector<std::string> choices_of(const std::string& type) {
  const size_t brace = type.find('{');
  if (brace != std::string::npos)
    return split(type.substr(brace + 1, type.find('}') - brace - 1), ',');
  if (type.find('|') != std::string::npos) return split(type, '|');
  if (type == "TYPE" || type == "TYPES") return format_names();
  if (type == "DEVICE") return {"auto", "cpu", "cuda"};
  if (type != "ISA") return {};
  std::vector<std::string> names;
  for (const Isa isa : supported_isas())
    names.emplace_back(isa_name(isa));
  return names;
}

// Turns "INT:INT in [1 - 1024]" into "INT"; the name is empty if the choices are listed.
std::string value_name(const std::string& type, const std::vector<std::string>& choices) {
  if (!choices.empty() && type.find_first_of("{|") != std::string::npos) {
    std::string text;
    for (const std::string& choice : choices)
      text += (text.empty() ? "" : "|") + choice;
    return text;
  }
  return type.substr(0, type.find(':'));
}

FlagDescription describe(const CLI::Option& option, bool positional) {
  FlagDescription flag;
  flag.positional = positional;
  if (flag.positional) {
    flag.names = {option.get_name(true, false)};
  } else {
    for (const std::string& name : option.get_snames())
      flag.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames())
      flag.names.push_back("--" + name);
  }
  flag.required = option.get_required();
  flag.takes_value = option.get_items_expected_max() > 0;
  flag.repeats = option.get_items_expected_max() > 1;
  const std::string type = option.get_type_name();
  if (flag.takes_value) {
    flag.choices = choices_of(type);
    flag.value = value_name(type, flag.choices);
    flag.initial = option.get_default_str();
  }
  flag.takes_file = option.get_positional() || flag.value == "FILE" || flag.value == "DIR";
  flag.help = option.get_description();
  flag.group = option.get_group();
  flag.environment = option.get_envname();
  return flag;
}

CommandDescription describe(const CLI::App& app, bool root) {
  CommandDescription command;
  if (!root) command.name = app.get_name();
  command.help = app.get_description();
  command.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    command.flags.push_back(describe(*option, option->get_positional()));
    if (!option->get_positional() || !option->nonpositional()) continue;
    // A positional argument that can also be given as a flag is listed as both; neither is
    // required.
    FlagDescription flag = describe(*option, false);
    flag.value = command.flags.back().names.front();
    flag.required = false;
    command.flags.push_back(std::move(flag));
  }
  return command;
}

}  // namespace

std::vector<CommandDescription> describe_commands(const CLI::App& root) {
  std::vector<CommandDescription> commands = {describe(root, true)};
  for (const CLI::App* command : root.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) commands.push_back(describe(*command, false));
  return commands;
}

}  // namespace walsh::cli
