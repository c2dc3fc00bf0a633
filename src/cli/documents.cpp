// `walsh man` and `walsh completions` write files that a package installs beside the program.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/command_tree.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/output.h"
#include "io/atomic_file.h"
#include "io/system_error.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

namespace fs = std::filesystem;
using Commands = std::vector<CommandDescription>;

std::string completions(const Commands& commands, const std::string& shell) {
  if (shell == "bash") return bash_completions(commands);
  if (shell == "zsh") return zsh_completions(commands);
  return fish_completions(commands);
}

void write_document(const fs::path& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) throw_system_error(path.parent_path().string(), "create", error.value());
  write_file(path.string(), text);
}

// Writes manual pages and completions where programs look for them below share/.
void write_all(const Commands& commands, const fs::path& share) {
  for (const CommandDescription& command : commands) {
    const std::string page = command.name.empty() ? "walsh" : "walsh-" + command.name;
    write_document(share / "man" / "man1" / (page + ".1"), manual_page(commands, command.name));
  }
  write_document(share / "bash-completion" / "completions" / "walsh", bash_completions(commands));
  write_document(share / "zsh" / "vendor-completions" / "_walsh", zsh_completions(commands));
  write_document(share / "fish" / "vendor_completions.d" / "walsh.fish",
                 fish_completions(commands));
}

}  // namespace

Action add_man(Command& command) {
  const auto name = std::make_shared<std::string>(), share = std::make_shared<std::string>();
  command.add("COMMAND", name.get(), "Command whose page to print; without one, the program's");
  command.add("--install", share.get(),
              "Write all pages and completions below this folder (PREFIX/share)", {.value = "DIR"});
  return [=, &program = *command.program] {
    const Commands commands = describe_commands(program);
    if (share->empty()) {
      if (std::none_of(commands.begin(), commands.end(),
                       [&](const CommandDescription& c) { return c.name == *name; }))
        throw Error(ErrorCode::usage, "command line", no_such_command(program, *name));
      write_result(manual_page(commands, *name));
    } else {
      write_all(commands, *share);
    }
    return 0;
  };
}

Action add_completions(Command& command) {
  const auto shell = std::make_shared<std::string>();
  command.add("SHELL", shell.get(), "bash, zsh or fish",
              {.required = true, .choices = {"bash", "zsh", "fish"}});
  return [=, &program = *command.program] {
    write_result(completions(describe_commands(program), *shell));
    return 0;
  };
}

}  // namespace walsh::cli
