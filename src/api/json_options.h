// Parses the options of the C interface: JSON objects whose keys are the fields of the public
// structures.
#pragma once

#include <string_view>

#include "walsh/engine.h"

namespace walsh {

// An empty text means no options. Throw usage naming the key for an unknown key, a value of another
// type or out of range, and for text that is no JSON object.
GenerationOptions parse_generation_options(std::string_view json);
EngineOptions parse_engine_options(std::string_view json);

}  // namespace walsh
