// The command `walsh` parses, dispatches, and turns every failure into one line and an exit status.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/spelling.h"
#include "cli/build_info.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/output.h"
#include "cli/parser.h"
#include "cli/process.h"
#include "cli/recipe_options.h"
#include "walsh/error.h"
#include "weights/hub_cache.h"

namespace walsh::cli {
namespace {

constexpr const char* kHelp = "Print this help message and exit";

int fail(ErrorCode code, const std::string& where, const std::string& reason) {
  return report(Error(code, where, reason));
}

void add_commands(Command& program) {
  using Adder = Action (*)(Command&);
  const std::pair<const char*, std::pair<const char*, Adder>> table[] = {
      {"quantize", {"Compress a checkpoint into one file", add_quantize}},
      {"eval", {"Measure perplexity, and the KL divergence from another model", add_eval}},
      {"run", {"Chat with a model, or let it continue a text", add_run}},
      {"embed", {"Turn texts into embeddings", add_embed}},
      {"serve", {"Serve a model over HTTP, with the APIs of OpenAI and Anthropic", add_serve}},
      {"bench", {"Measure speed, and how much of the memory bandwidth is used", add_bench}},
      {"inspect", {"Show what is in a model: tensors, types, errors", add_inspect}},
      {"formats", {"List the types and measure their errors", add_formats}},
      {"list", {"List the models that Hugging Face's tools have downloaded", add_list}},
      {"devices", {"List the processors and GPUs that can run a model", add_devices}},
      {"help", {"Explain a command, with examples", add_help}},
      {"man", {"Print the manual page: walsh man run | man -l -", add_man}},
      {"completions",
       {"Print completions for a shell: source <(walsh completions bash)", add_completions}},
  };
  for (const auto& [name, entry] : table) {
    Command& command = program.commands.emplace_back();
    command.name = name;
    command.help = entry.first;
    command.program = &program;
    command.add("-h,--help", Help::brief, kHelp);
    command.add("--help-all", Help::all, "All flags");
    command.action = entry.second(command);
  }
}

int parse_and_run(int argc, char** argv) {
  Command program;
  program.help = "walsh compresses language models and runs them.";
  program.footer = type_list();
  bool version = false, verbose = false;
  program.add("-h,--help", Help::brief, kHelp);
  const Flag& asked = program.add("-V,--version", &version,
                                  "Show the version, and instruction sets of this machine");
  program.add("--verbose", &verbose, "With --version: also commit, compiler, CUDA",
              {.needed = &asked});
  program.add("--help-all", Help::all, "Show this help, and the types");
  add_commands(program);
  Arguments arguments = parser_arguments(program, argc, argv);
  const Parsed parsed = parse(program, std::move(arguments.texts));
  if (parsed.help == Help::brief) {
    write_help(short_help(program, parsed.command));
    return 0;
  }
  if (parsed.help == Help::all) {
    write_result(full_help(program, parsed.command));
    return 0;
  }
  print_notes(arguments.notes);
  if (version) {
    write_result((verbose ? verbose_version_text() : version_text()) + "\n");
    return 0;
  }
  if (parsed.command != nullptr) return parsed.command->action();
  return fail(ErrorCode::usage, "command line", "a command is missing; walsh help lists them");
}

// Adds a suggestion to the error about a path that does not exist.
Error with_advice(const Error& error) {
  const std::filesystem::path path(error.where());
  std::error_code unreadable;
  if (error.code() != ErrorCode::io || !error.reason().starts_with("cannot open") ||
      std::filesystem::symlink_status(path, unreadable).type() !=
          std::filesystem::file_type::not_found)
    return error;
  std::vector<std::string> names;
  const std::filesystem::path folder = path.parent_path();
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, unreadable);
  for (; !unreadable && entry != std::filesystem::directory_iterator() && names.size() < 1000;
       entry.increment(unreadable))
    names.push_back((folder / entry->path().filename()).string());
  std::string advice = did_you_mean(error.where(), names);
  const bool is_repository = std::count(error.where().begin(), error.where().end(), '/') == 1 &&
                             !std::filesystem::exists(folder, unreadable);
  if (advice.empty() && is_repository && !folder.empty() && folder != "/") {
    advice = "; nor is it in the cache " + hub_folder() +
             " (walsh list): walsh downloads nothing, "
             "`hf download " +
             error.where() + "` does";
  }
  return Error(error.code(), error.where(), error.reason() + advice);
}

int guarded(int argc, char** argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const Error& e) {
    return report(with_advice(e));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::limit, "memory", "not enough memory");
  } catch (const std::exception& e) {
    return fail(ErrorCode::internal, "walsh", e.what());
  }
}

}  // namespace
}  // namespace walsh::cli

int main(int argc, char** argv) {
  walsh::cli::open_standard_descriptors();
  walsh::cli::handle_process_ends();
  return walsh::cli::finish_output(walsh::cli::guarded(argc, argv));
}
