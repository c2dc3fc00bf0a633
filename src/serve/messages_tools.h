// The tools of Anthropic's messages as functions.
#pragma once

#include <string>

#include "io/json.h"

namespace walsh {

// The function of a tool that stands at `path` of a request: one of the client's own, or one of
// Anthropic's whose calls clients answer and whose input is known (bash, text editor, memory).
// Throws ApiError 400 naming any other: Anthropic's servers run it, or it answers with pictures.
OrderedJson function_of(const OrderedJson& tool, const std::string& path);

}  // namespace walsh
