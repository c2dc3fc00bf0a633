// Translates the tools of Anthropic's messages to functions.
#pragma once

#include <string>

#include "io/json.h"

namespace walsh {

// Translates the tool at `path` of a request. It is one of the client's own, or one of Anthropic's
// that the client executes and whose input is known (bash, text editor, memory). Throws ApiError
// 400 naming any other tool, which Anthropic's servers would execute or whose results are images.
OrderedJson function_of(const OrderedJson& tool, const std::string& path);

}  // namespace walsh
