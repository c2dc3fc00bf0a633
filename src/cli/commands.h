// Declares the sub-commands of `walsh`: each adds its options to the parser and returns what to do
// when it is chosen. There is one file per command.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace walsh::cli {

// Returns a command's exit status; throws walsh::Error.
using Action = std::function<int()>;

Action add_quantize(CLI::App& command);
Action add_eval(CLI::App& command);
Action add_run(CLI::App& command);
Action add_embed(CLI::App& command);
Action add_serve(CLI::App& command);
Action add_bench(CLI::App& command);
Action add_inspect(CLI::App& command);
Action add_formats(CLI::App& command);
Action add_list(CLI::App& command);
Action add_devices(CLI::App& command);
Action add_help(CLI::App& command);
Action add_man(CLI::App& command);
Action add_completions(CLI::App& command);

}  // namespace walsh::cli
