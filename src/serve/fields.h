// The fields of a request's JSON object, with errors that name their path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "serve/api_error.h"

namespace walsh {

// Every getter gives nothing for a field that is absent or null, and throws ApiError 400 for
// another type or a value out of range.
class Fields {
 public:
  // `path` is that of the object in the request, empty for the request itself. Throws for anything
  // but an object.
  Fields(const Json& object, std::string path);

  std::optional<double> number(const char* key, double least, double most) const;
  std::optional<int64_t> integer(const char* key, int64_t least, int64_t most) const;
  std::optional<bool> flag(const char* key) const;
  std::optional<std::string> text(const char* key) const;
  // A string or a list of them, of which there are at most so many.
  std::vector<std::string> texts(const char* key, size_t most) const;
  const Json* find(const char* key) const;  // null if absent or null
  std::string path(const std::string& key) const;
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;

 private:
  const Json& object_;
  std::string path_;
};

// Values of a body, and of what stands as text in it: enough for every batch of prompts as lists of
// tokens, and some 200 MB at most.
inline constexpr int64_t kMostBodyValues = int64_t{1} << 20;

// The request's body; ApiError 400 for what is not JSON or has too many values. The second keeps
// the order of keys, which matters to models, and is an object.
Json parse_body(const std::string& body);
OrderedJson parse_ordered_body(const std::string& body);

}  // namespace walsh
