// The document at /openapi.json.
#pragma once

#include <cstdint>
#include <string>

namespace walsh {

// Of a model whose tokens have ids up to `last_token`.
std::string openapi_text(int64_t last_token);

}  // namespace walsh
