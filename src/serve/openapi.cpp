#include "serve/openapi.h"

#include <string_view>

#include "serve/page.h"
#include "serve/sampling_fields.h"
#include "walsh/version.h"

namespace walsh {

std::string openapi_text(int64_t last_token) {
  std::string text(kOpenApiText);
  const auto put = [&](std::string_view place, const std::string& value) {
    text.replace(text.find(place), place.size(), value);
  };
  put("@VERSION@", kVersion);
  put("\"@LAST_TOKEN@\"", std::to_string(last_token));
  put("\"@SAMPLING@\"", sampling_properties().dump());
  return text;
}

}  // namespace walsh
