// Writes completions for shells, which cover commands, flags, known values and files.
#include <fmt/format.h>

#include <algorithm>

#include "cli/command_tree.h"

namespace walsh::cli {
namespace {

std::string join(const std::vector<std::string>& words, const char* separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

std::vector<std::string> names_of(const std::vector<CommandDescription>& commands) {
  std::vector<std::string> names;
  for (const CommandDescription& command : commands)
    if (!command.name.empty()) names.push_back(command.name);
  return names;
}

std::string replaced(const std::string& text, char what, const std::string& by) {
  std::string result;
  for (const char c : text)
    result += c == what ? by : std::string(1, c);
  return result;
}

// Quotes a text for a single-quoted string.
std::string quoted(const std::string& text) {
  return "'" + replaced(text, '\'', "'\\''") + "'";
}

// Returns the first sentence or clause, since lines of a menu are short.
std::string brief(const std::string& help) {
  return help.substr(0, std::min({help.find("; "), help.find(": "), help.find('\n')}));
}

// Returns lines such as " quantize:--type|quantize:--head-type) words ;;" for every flag with a
// value.
std::string bash_values(const CommandDescription& command) {
  std::string cases;
  for (const FlagDescription& flag : command.flags) {
    if (flag.positional || !flag.takes_value) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : flag.names)
      patterns.push_back(command.name + ":" + name);
    std::string action = "return";
    if (flag.takes_file) action = "COMPREPLY=($(compgen -f -- \"$cur\")); return";
    if (!flag.choices.empty())
      action = fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return",
                           join(flag.choices, " "));
    cases += fmt::format("    {}) {} ;;\n", join(patterns, "|"), action);
  }
  return cases;
}

std::string flag_words(const CommandDescription& command) {
  std::vector<std::string> words;
  for (const FlagDescription& flag : command.flags)
    if (!flag.positional) words.insert(words.end(), flag.names.begin(), flag.names.end());
  return join(words, " ");
}

std::string zsh_text(const std::string& help) {
  std::string text = brief(help);
  for (const char special : {'[', ']', ':'})
    text = replaced(text, special, std::string("\\") + special);
  return text;
}

std::string zsh_argument(const FlagDescription& flag) {
  const std::string action = !flag.choices.empty()
                                 ? "(" + replaced(join(flag.choices, " "), ':', "\\:") + ")"
                             : flag.takes_file ? "_files"
                                               : " ";
  if (flag.positional) return fmt::format("    ':{}:{}' \\\n", flag.names[0], action);
  std::string lines;
  const std::string others = flag.repeats ? "*" : "(" + join(flag.names, " ") + ")";
  for (const std::string& name : flag.names) {
    const std::string value =
        flag.takes_value ? fmt::format(":{}:{}", replaced(flag.value, ':', "\\:"), action) : "";
    lines += "    " + quoted(others + name + "[" + zsh_text(flag.help) + "]" + value) + " \\\n";
  }
  return lines;
}

}  // namespace

std::string bash_completions(const std::vector<CommandDescription>& commands) {
  std::string values, flags;
  for (const CommandDescription& command : commands) {
    values += bash_values(command);
    flags += fmt::format("    '{}') flags='{}' ;;\n", command.name, flag_words(command));
  }
  const std::vector<std::string> names = names_of(commands);
  return fmt::format(R"(# bash completions of walsh; made by: walsh completions bash
_walsh() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}}
  local command='' flags='' word
  COMPREPLY=()
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD - 1}}"; do
    case $word in {}) command=$word; break ;; esac
  done
  case $command:$prev in
{}  esac
  case $command in
{}  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [[ -z $command ]]; then
    COMPREPLY=($(compgen -W '{}' -- "$cur"))
  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -o filenames -F _walsh walsh
)",
                     join(names, "|"), values, flags, join(names, " "));
}

std::string zsh_completions(const std::vector<CommandDescription>& commands) {
  std::string list, cases;
  for (const CommandDescription& command : commands) {
    std::string arguments;
    for (const FlagDescription& flag : command.flags)
      arguments += zsh_argument(flag);
    if (command.name.empty()) continue;
    list += fmt::format("    {}\n", quoted(command.name + ":" + brief(command.help)));
    cases += fmt::format("  {}) _arguments -S \\\n{}    && return ;;\n", command.name, arguments);
  }
  return fmt::format(R"(#compdef walsh
# zsh completions of walsh; made by: walsh completions zsh
_walsh() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
{}  esac
}}
_walsh "$@"
)",
                     list, cases);
}

std::string fish_completions(const std::vector<CommandDescription>& commands) {
  std::string text = "# fish completions of walsh; made by: walsh completions fish\n";
  for (const CommandDescription& command : commands) {
    if (command.name.empty()) continue;
    text += fmt::format("complete -c walsh -n __fish_use_subcommand -f -a {} -d {}\n", command.name,
                        quoted(brief(command.help)));
    for (const FlagDescription& flag : command.flags) {
      if (flag.positional) continue;
      text += fmt::format("complete -c walsh -n '__fish_seen_subcommand_from {}'", command.name);
      for (const std::string& name : flag.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (flag.takes_value) text += flag.takes_file ? " -r" : " -x";
      if (!flag.choices.empty()) text += " -a " + quoted(join(flag.choices, " "));
      text += " -d " + quoted(brief(flag.help)) + "\n";
    }
  }
  return text;
}

}  // namespace walsh::cli
