// Tells which request fields have an effect, because the document at /openapi.json describes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace walsh {

// Returns whether the endpoint at `path` uses the field. Endpoints that are not described use all
// fields.
bool is_known_field(const std::string& path, std::string_view name);

// Counts the fields of a body that the endpoint ignores. Returns 0 if `body` is no object.
template <class Object>
uint64_t ignored_fields(const std::string& path, const Object& body) {
  uint64_t count = 0;
  if (!body.is_object()) return count;
  for (const auto& [name, value] : body.items())
    count += is_known_field(path, name) ? 0 : 1;
  return count;
}

}  // namespace walsh
