// Writes manual pages in the macros of man(7).
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "cli/command_tree.h"
#include "cli/recipe_options.h"
#include "walsh/error.h"
#include "walsh/version.h"

namespace walsh::cli {
namespace {

// A backslash, a dash, and a dot at the start of a line have a meaning in man(7).
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) result += "\\&";
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result;
}

std::string page_name(const CommandDescription& command) {
  return command.name.empty() ? "walsh" : "walsh-" + command.name;
}

std::string synopsis(const CommandDescription& command) {
  std::string text = "walsh";
  if (command.name.empty()) return "\\fBwalsh\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n";
  text = fmt::format("\\fBwalsh {}\\fR [\\fIOPTIONS\\fR]", escaped(command.name));
  for (const FlagDescription& flag : command.flags) {
    if (!flag.positional) continue;
    const std::string name = "\\fI" + escaped(flag.names[0]) + "\\fR";
    text += flag.required ? " " + name : " [" + name + "]";
  }
  return text + "\n";
}

std::string flag_entry(const FlagDescription& flag) {
  std::string head;
  for (const std::string& name : flag.names)
    head += (head.empty() ? "" : ", ") +
            fmt::format("\\f{}{}\\fR", flag.positional ? 'I' : 'B', escaped(name));
  if (flag.takes_value && !flag.positional) head += " \\fI" + escaped(flag.value) + "\\fR";
  std::string text = ".TP\n" + head + "\n" + escaped(flag.help);
  if (!flag.initial.empty() && flag.help.find("default") == std::string::npos)
    text += fmt::format(" (default: {})", escaped(flag.initial));
  if (!flag.environment.empty()) text += ".\nAlso \\fB" + escaped(flag.environment) + "\\fR";
  return text + "\n";
}

std::string options(const CommandDescription& command) {
  std::vector<std::string> groups;
  for (const FlagDescription& flag : command.flags)
    if (!flag.positional && std::find(groups.begin(), groups.end(), flag.group) == groups.end())
      groups.push_back(flag.group);
  std::string text;
  for (const FlagDescription& flag : command.flags)
    if (flag.positional) text += flag_entry(flag);
  for (const std::string& group : groups) {
    text += ".SS " + escaped(group) + "\n";
    for (const FlagDescription& flag : command.flags)
      if (!flag.positional && flag.group == group) text += flag_entry(flag);
  }
  return text;
}

// This is the README's text.
constexpr const char* kExitStatus = R"(.SH EXIT STATUS
.TP
\fB0\fR
done
.TP
\fB1\fR
internal error, or a missed bound
.TP
\fB2\fR
usage
.TP
\fB3\fR
bad input
.TP
\fB4\fR
out of memory, or over a limit
.TP
\fB5\fR
input or output failed
.TP
\fB130\fR
interrupted
.TP
\fB141\fR
the reader of the output has closed it
)";

}  // namespace

std::string manual_page(const std::vector<CommandDescription>& commands, const std::string& name) {
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&](const CommandDescription& c) { return c.name == name; });
  if (found == commands.end()) throw Error(ErrorCode::usage, name, "is no command");
  const CommandDescription& command = *found;
  // A name of a manual page stands before its description.
  const std::string help =
      command.help.starts_with("walsh ") ? command.help.substr(6) : command.help;
  std::string text = fmt::format(
      ".TH {} 1 \"\" \"walsh {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n",
      escaped(page_name(command)), kVersion, escaped(page_name(command)), escaped(help));
  text += ".SH SYNOPSIS\n" + synopsis(command);
  if (name.empty()) {
    text += ".SH COMMANDS\n";
    for (const CommandDescription& c : commands)
      if (!c.name.empty())
        text += fmt::format(".TP\n\\fBwalsh {}\\fR\n{}\n", escaped(c.name), escaped(c.help));
  }
  text += ".SH OPTIONS\n" + options(command);
  if (command.footer == type_list()) {
    text += ".SH TYPES\n.nf\n" + escaped(command.footer) + "\n.fi\n";
  } else if (!command.footer.empty()) {
    text += ".SH NOTES\n" + escaped(command.footer) + "\n";
  }
  text += kExitStatus;
  text += ".SH SEE ALSO\n";
  std::string others;
  for (const CommandDescription& c : commands)
    if (c.name != name)
      others += (others.empty() ? "" : ",\n") + fmt::format("\\fB{}\\fR(1)", escaped(page_name(c)));
  return text + others + "\n";
}

}  // namespace walsh::cli
