// Which fields of a request mean something: those that the document at /openapi.json has.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace walsh {

// Whether the endpoint at `path` reads a field. One that the document does not describe reads all.
bool is_known_field(const std::string& path, std::string_view name);

// Fields of a body that the endpoint passes over; none of what is no object.
template <class Object>
uint64_t ignored_fields(const std::string& path, const Object& body) {
  uint64_t count = 0;
  if (!body.is_object()) return count;
  for (const auto& [name, value] : body.items())
    count += is_known_field(path, name) ? 0 : 1;
  return count;
}

}  // namespace walsh
