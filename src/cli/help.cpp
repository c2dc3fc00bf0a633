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

const CLI::App* chosen_of(const CLI::App& root) {
  const auto chosen = root.get_subcommands();
  return chosen.empty() ? nullptr : chosen.front();
}

std::string program_help(const CLI::App& root) {
  std::string text = root.get_description() + "\n" + heading("Usage:") +
                     "  walsh COMMAND [OPTIONS]\n" + heading("Subcommands:");
  for (const CLI::App* command : root.get_subcommands([](const CLI::App*) { return true; }))
    text += fmt::format("  {:<12} {}\n", command->get_name(), command->get_description());
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

std::string command_help(const CLI::App& root, const CLI::App& command, const Brief& brief) {
  const auto commands = describe_commands(root);
  const auto described =
      std::find_if(commands.begin(), commands.end(),
                   [&](const CommandDescription& c) { return c.name == command.get_name(); });
  std::string usage = "  walsh " + command.get_name(), flags;
  for (const FlagDescription& flag : described->flags) {
    if (!flag.positional) continue;
    usage += flag.required ? " " + flag.names[0] : " [" + flag.names[0] + "]";
    flags += flag_line(flag);
  }
  for (const std::string_view wanted : brief.flags)
    for (const FlagDescription& flag : described->flags)
      if (!flag.positional &&
          std::find(flag.names.begin(), flag.names.end(), wanted) != flag.names.end())
        flags += flag_line(flag);
  return fmt::format("{}\n{}{} [OPTIONS]\n{}{}{}{}\nwalsh {} --help-all lists all flags.\n",
                     command.get_description(), heading("Usage:"), usage, heading("Examples:"),
                     brief.examples, heading("Most used:"), flags, command.get_name());
}

}  // namespace

std::string short_help(const CLI::App& root) {
  const CLI::App* command = chosen_of(root);
  if (command == nullptr) return program_help(root);
  for (const Brief& brief : briefs())
    if (brief.command == command->get_name()) return command_help(root, *command, brief);
  return command->help("walsh");
}

// The command's arguments are read like those of --help, before the parser sees them
// (cli/command_line.h).
Action add_help(CLI::App& command) {
  const auto name = std::make_shared<std::string>();
  command.add_option("COMMAND", *name, "Command (default: walsh itself)");
  return [name] { return 0; };
}

std::string no_such_command(const CLI::App& root, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : root.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  const std::string meant = did_you_mean(name, names);
  return fmt::format("there is no command {}{}", name,
                     meant.empty() ? "; walsh help lists them" : meant);
}

std::string no_such_flag(const CLI::App& command, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& known : option->get_lnames())
      names.push_back("--" + known);
  return fmt::format("there is no flag {}{}", name, did_you_mean(name, names));
}

}  // namespace walsh::cli
