// Declares the sub-commands of `walsh`: each adds its options to the parser and returns what to do
// when it is chosen. There is one file per command.
#pragma once

#include <functional>

#include "cli/flags.h"

namespace walsh::cli {

// Returns a command's exit status; throws walsh::Error.
using Action = std::function<int()>;

Action add_quantize(Command& command);
Action add_eval(Command& command);
Action add_run(Command& command);
Action add_embed(Command& command);
Action add_serve(Command& command);
Action add_bench(Command& command);
Action add_inspect(Command& command);
Action add_formats(Command& command);
Action add_list(Command& command);
Action add_devices(Command& command);
Action add_help(Command& command);
Action add_man(Command& command);
Action add_completions(Command& command);

}  // namespace walsh::cli
