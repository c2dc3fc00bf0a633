// Serves the chat page at /. It is one HTML text without external resources, which is built from
// src/serve/page/.
#pragma once

#include <string_view>

#include "serve/http.h"

namespace walsh {

extern const std::string_view
    kPageText;  // it has @NONCE@ and '@SAMPLING@', which page_response() sets
// This text has @VERSION@ in place of walsh's version and "@LAST_TOKEN@" in place of the largest
// token id.
extern const std::string_view kOpenApiText;

// Returns the page with a content security policy, by which a browser runs only its own script and
// style, accepts no markup from scripts (trusted types), shows it in no frame and connects only to
// this server.
HttpResponse page_response();

}  // namespace walsh
