// Defines flags for generation, which are also settings of a conversation.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "walsh/engine.h"

namespace walsh::cli {

// Adds --temp and all other sampling flags, which are the rows of generate/sampling_options.h.
void add_sampling_options(Command& command, GenerationOptions& options);

// Adds the sampling flags and -n, which it returns.
Flag& add_generation_options(Command& command, GenerationOptions& options);

// Returns a note for each given flag that has no effect on a text with these options.
std::vector<std::string> idle_sampling_flags(const GenerationOptions& options);

// Returns the names that set_generation_option takes.
std::vector<std::string> generation_option_names();

// Sets what the flag --`name` sets. Throws usage for an unknown name or an invalid value, leaving
// the options unchanged.
void set_generation_option(GenerationOptions& options, const std::string& name,
                           const std::string& value);

}  // namespace walsh::cli
