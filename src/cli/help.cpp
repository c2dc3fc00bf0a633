#include "cli/help.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "base/spelling.h"
#include "cli/command_tree.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/parser.h"

namespace walsh::cli {
namespace {

struct Brief {
  std::string_view command;
  const char* examples;
  std::vector<std::string_view> flags;  // each flag is listed by one of its names
};

const std::vector<Brief>& briefs() {
  static const std::vector<Brief> all = {
      {"quantize",
       "  walsh quantize MODEL                                   which types fit this machine\n"
       "  walsh quantize MODEL model-tq4.gguf --type tq4         a file of about 4 bits per "
       "weight\n"
       "  walsh quantize MODEL model.gguf --size 5GiB            a type for every tensor\n"
       "  walsh quantize MODEL model-tq4 --type tq4 --output-format hf    for transformers\n",
       {"--type", "--bpw", "--size", "--calibrate", "--output-format", "--device", "--threads",
        "--dry-run", "--json"}},
      {"run",
       "  walsh run model.gguf                                   a conversation\n"
       "  walsh run model.gguf -p \"Name a river.\"                one answer\n"
       "  walsh run model.gguf --raw -p \"The river\" -n 40        the text continued\n"
       "  walsh run MODEL --quantize tq4                         compressed while loading\n",
       {"--prompt", "--file", "--system-prompt", "--raw", "--n-predict", "--ctx-size", "--temp",
        "--seed", "--json-schema", "--device", "--threads", "--quantize"}},
      {"serve",
       "  walsh serve model.gguf                                 http://127.0.0.1:8080/v1\n"
       "  walsh serve model.gguf --host 0.0.0.0 --api-key KEY    for others on the network\n"
       "  walsh serve --models-dir DIR --device cpu              several models, loaded on "
       "demand\n",
       {"--host", "--port", "--api-key", "--alias", "--allowed-hosts", "--models-dir", "--ctx-size",
        "--parallel", "--device", "--threads"}},
      {"embed",
       "  walsh embed model.gguf \"A text\" \"Another\"              a line of JSON for each text\n"
       "  walsh embed model.gguf < FILE                          for each line of a file\n",
       {"--pooling", "--normalize", "--dimensions", "--ctx-size", "--parallel", "--device",
        "--threads"}},
      {"eval",
       "  walsh eval model.gguf --text FILE                      perplexity\n"
       "  walsh eval model.gguf --text FILE --reference MODEL    and the divergence from MODEL\n",
       {"--text", "--reference", "--ctx", "--chunks", "--device", "--threads", "--json"}},
      {"bench",
       "  walsh bench model.gguf                                 prompts and generation\n"
       "  walsh bench model.gguf -p 512 -n 128 --parallel 1,4    several texts together\n"
       "  walsh bench --synthetic 8b --type tq4                  random weights of this shape\n",
       {"--n-prompt", "--n-gen", "--parallel", "--repetitions", "--synthetic", "--type", "--device",
        "--threads", "--output"}},
      {"inspect",
       "  walsh inspect model.gguf                               tensors, types, errors\n"
       "  walsh inspect model.gguf --check                       also verifies checksums\n",
       {"--check", "--source", "--json"}},
      {"formats",
       "  walsh formats                                          all types, measured\n"
       "  walsh formats tq3 tq4                                  two of them\n",
       {"--cache", "--check", "--json"}},
  };
  return all;
}

std::string heading(const std::string& text) {
  return fmt::format("{}{}{}\n", color_code(STDOUT_FILENO, Color::bold), text,
                     color_code(STDOUT_FILENO, Color::none));
}

std::string program_help(const Command& program) {
  std::string text = program.help + "\n" + heading("Usage:") + "  walsh COMMAND [OPTIONS]\n" +
                     heading("Subcommands:");
  for (const Command& command : program.commands)
    text += fmt::format("  {:<12} {}\n", command.name, command.help);
  return text + heading("Examples:") +
         "  walsh quantize MODEL                            which types fit this machine\n"
         "  walsh quantize MODEL model.gguf --type tq4      compress a checkpoint\n"
         "  walsh run model.gguf                            hold a conversation\n"
         "  walsh serve model.gguf                          answer requests over HTTP\n"
         "\nMODEL is a Hugging Face folder or a GGUF file. walsh help COMMAND tells more of a "
         "command,\nwalsh COMMAND --help-all everything; walsh formats lists the types.\n";
}

std::string flag_line(const FlagDescription& flag) {
  std::string names;
  for (const std::string& name : flag.names)
    names += (names.empty() ? "" : ",") + name;
  if (flag.takes_value && !flag.positional) names += " " + flag.value;
  const char* gap = names.size() < 30 ? "" : "\n                                ";
  return fmt::format("  {:<30}{}{}\n", names, gap, flag.help);
}

std::string command_help(const Command& command, const Brief& brief) {
  const CommandDescription described = describe(command);
  std::string usage = "  walsh " + command.name, flags;
  for (const FlagDescription& flag : described.flags) {
    if (!flag.positional) continue;
    usage += flag.required ? " " + flag.names[0] : " [" + flag.names[0] + "]";
    flags += flag_line(flag);
  }
  for (const std::string_view wanted : brief.flags)
    for (const FlagDescription& flag : described.flags)
      if (!flag.positional &&
          std::find(flag.names.begin(), flag.names.end(), wanted) != flag.names.end())
        flags += flag_line(flag);
  return fmt::format("{}\n{}{} [OPTIONS]\n{}{}{}{}\nwalsh {} --help-all lists all flags.\n",
                     command.help, heading("Usage:"), usage, heading("Examples:"), brief.examples,
                     heading("Most used:"), flags, command.name);
}

}  // namespace

std::string short_help(Command& program, const Command* command) {
  if (command == nullptr) return program_help(program);
  for (const Brief& brief : briefs())
    if (brief.command == command->name) return command_help(*command, brief);
  return full_help(program, command);
}

// The command's arguments are read like those of --help, before the parser sees them
// (cli/command_line.h).
Action add_help(Command& command) {
  const auto name = std::make_shared<std::string>();
  command.add("COMMAND", name.get(), "Command (default: walsh itself)");
  return [name] { return 0; };
}

std::string no_such_command(const Command& program, const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : program.commands)
    names.push_back(command.name);
  const std::string meant = did_you_mean(name, names);
  return fmt::format("there is no command {}{}", name,
                     meant.empty() ? "; walsh help lists them" : meant);
}

std::string no_such_flag(const Command& command, const std::string& name) {
  std::vector<std::string> names;
  for (const Flag& flag : command.flags)
    names.insert(names.end(), flag.longs.begin(), flag.longs.end());
  return fmt::format("there is no flag {}{}", name, did_you_mean(name, names));
}

}  // namespace walsh::cli
