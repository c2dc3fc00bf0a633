// Reads from a request which of several models it is for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "serve/http.h"

namespace walsh {

struct ModelChoice {
  std::string name;                    // empty: the request names none
  std::optional<double> keep_seconds;  // Ollama's keep_alive
};

// Reads the field "model" of the body (in Ollama's interface also "name"), or of the query. Throws
// ApiError 400 for one that is no text, and for a body that is no JSON object.
ModelChoice choice_of(const HttpRequest& request);

// Parses a duration as Ollama does: 300 (seconds), 5m, 1h30m, 500ms; below 0: forever, which is
// returned as -1. Returns nothing for another text.
std::optional<double> parse_duration(std::string_view text);

}  // namespace walsh
