// Decodes percent-encoding, as in the paths of URLs and the references of JSON schemas.
#pragma once

#include <string>
#include <string_view>

namespace walsh {

// Replaces codes such as "%20" by their characters; anything else stays.
std::string percent_decoded(std::string_view text);

// Returns the decoded value that a key has in the query of a URL; empty if it is not there.
std::string query_value(std::string_view query, std::string_view key);

}  // namespace walsh
