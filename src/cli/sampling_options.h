// The flags that say how a text is continued, also as settings of a conversation.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "walsh/engine.h"

namespace walsh::cli {

// --temp and all else that says how tokens are chosen: the rows of generate/sampling_options.h.
void add_sampling_options(CLI::App& command, GenerationOptions& options);

// The same with -n.
void add_generation_options(CLI::App& command, GenerationOptions& options);

// What was given and has no effect on a text that these options are for, each as a note.
std::vector<std::string> idle_sampling_flags(const GenerationOptions& options);

// Sets what the flag --`name` sets. Throws usage for a name that is none and for a wrong value; the
// options are unchanged then.
void set_generation_option(GenerationOptions& options, const std::string& name,
                           const std::string& value);

}  // namespace walsh::cli
