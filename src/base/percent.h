// Decodes percent-encoding, as in the paths of URLs and the references of JSON schemas.
#pragma once

#include <string>
#include <string_view>

namespace walsh {

// Decodes codes such as "%20"; anything else stays.
std::string percent_decoded(std::string_view text);

}  // namespace walsh
