// Makes the document at /openapi.json.
#pragma once

#include <cstdint>
#include <string>

namespace walsh {

// Returns the document's text for a model whose largest token id is `last_token`.
std::string openapi_text(int64_t last_token);

}  // namespace walsh
