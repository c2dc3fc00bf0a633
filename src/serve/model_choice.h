// Reads from a request which of several models it is for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "serve/http.h"

namespace walsh {

struct ModelChoice {
  std::string name;                    // it is empty if the request names none
  std::optional<double> keep_seconds;  // it is Ollama's keep_alive
};

// Reads the field "model" of the body (in Ollama's interface also "name"), or of the query. Throws
// ApiError 400 for one that is no text, and for a body that is no JSON object.
ModelChoice choice_of(const HttpRequest& request);

// Parses a duration as Ollama does, such as 300 (seconds), 5m, 1h30m or 500ms. One below 0 means
// forever, which is returned as -1. Returns nothing for another text.
std::optional<double> parse_duration(std::string_view text);

}  // namespace walsh
