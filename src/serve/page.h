// The page at /: one HTML text without outside resources, made of src/serve/page/ by the build.
#pragma once

#include <string_view>

#include "serve/http.h"

namespace walsh {

extern const std::string_view kPageText;
// With @VERSION@ in the place of walsh's and "@LAST_TOKEN@" in that of the vocabulary's last one.
extern const std::string_view kOpenApiText;

// The page with a policy under which a browser runs its own script and style alone, takes no markup
// from scripts (trusted types), shows it in no frame and talks to this server only.
HttpResponse page_response();

}  // namespace walsh
