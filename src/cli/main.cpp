// The command `walsh` parses, dispatches, and turns every failure into one line and an exit status.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <new>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/spelling.h"
#include "cli/build_info.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/notes.h"
#include "cli/output.h"
#include "cli/process.h"
#include "cli/recipe_options.h"
#include "walsh/error.h"
#include "weights/hub_cache.h"

namespace walsh::cli {
namespace {

struct Command {
  CLI::App* app;
  Action action;
};

int fail(ErrorCode code, const std::string& where, const std::string& reason) {
  return report(Error(code, where, reason));
}

std::vector<Command> add_commands(CLI::App& app) {
  using Adder = Action (*)(CLI::App&);
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
  std::vector<Command> commands;
  for (const auto& [name, entry] : table) {
    CLI::App* command = app.add_subcommand(name, entry.first);
    command->set_help_all_flag("--help-all", "All flags");
    commands.push_back({command, entry.second(*command)});
    limit_to_one_value(*command);
  }
  return commands;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("walsh compresses language models and runs them.", "walsh");
  bool version = false, verbose = false;
  CLI::Option* asked = app.add_flag("-V,--version", version,
                                    "Show the version, and instruction sets of this machine");
  app.add_flag("--verbose", verbose, "With --version: also commit, compiler, CUDA")->needs(asked);
  app.require_subcommand(0, 1);
  const std::vector<Command> commands = add_commands(app);
  app.set_help_all_flag("--help-all", "Show this help, and the types");
  app.footer(type_list());  // this is added last, since commands would inherit it
  try {
    Arguments arguments = parser_arguments(app, argc, argv);
    app.parse(std::move(arguments.texts));
    print_notes(arguments.notes);
  } catch (const CLI::CallForHelp&) {
    write_help(short_help(app));
    return 0;
  } catch (const CLI::CallForAllHelp&) {
    const auto chosen = app.get_subcommands();
    write_result(chosen.empty() ? app.help("", CLI::AppFormatMode::Normal)
                                : chosen.front()->help("walsh"));
    return 0;
  } catch (const CLI::Success& e) {
    std::ostringstream text;
    app.exit(e, text, text);
    write_result(text.str());
    return 0;
  } catch (const CLI::ExtrasError&) {
    return fail(ErrorCode::usage, "command line", unexpected_text(app));
  } catch (const CLI::ParseError& e) {
    return fail(ErrorCode::usage, "command line", problem_text(e));
  }
  if (version) {
    write_result((verbose ? verbose_version_text() : version_text()) + "\n");
    return 0;
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.action();
  }
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
