// Parses the options of the C interface, which are JSON objects whose keys are the fields of the
// public structures.
#pragma once

#include <string_view>

#include "walsh/engine.h"

namespace walsh {

// These parse an object; an empty text means no options. They throw usage naming the key for an
// unknown key, a value of another type or out of range, and for text that is no JSON object.
GenerationOptions parse_generation_options(std::string_view json);
EngineOptions parse_engine_options(std::string_view json);

}  // namespace walsh
