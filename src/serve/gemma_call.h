// Reads calls as Gemma 4 writes them, which is call:NAME{key:value,...} with texts between <|"|>.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/json.h"

namespace walsh {

struct GemmaCall {
  std::string name;
  OrderedJson arguments;
};

// Returns the name of a call that is perhaps not complete, or an empty one if it is not known yet.
std::string gemma_call_name(std::string_view text);
// Returns the call, or nothing if the text is no such call.
std::optional<GemmaCall> parse_gemma_call(std::string_view text);

}  // namespace walsh
