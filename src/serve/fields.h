// Gives typed access to the fields of a request's JSON object, with errors that name their path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "serve/api_error.h"

namespace walsh {

// Every getter returns nothing for a field that is absent or null, and throws ApiError 400 for
// another type or a value out of range.
class Fields {
 public:
  // Gives access to `object`, whose path in the request is `path`; the request itself has an empty
  // one. Throws for anything but an object.
  Fields(const Json& object, std::string path);

  std::optional<double> number(const char* key, double least, double most) const;
  std::optional<int64_t> integer(const char* key, int64_t least, int64_t most) const;
  std::optional<bool> flag(const char* key) const;
  std::optional<std::string> text(const char* key) const;
  // Returns a string or a list of at most `most` strings.
  std::vector<std::string> texts(const char* key, size_t most) const;
  const Json* find(const char* key) const;  // It returns null if the field is absent or null.
  std::string path(const std::string& key) const;
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;

 private:
  const Json& object_;
  std::string path_;
};

// A body has at most this many JSON values, including JSON inside its strings. That is enough for
// every batch of prompts given as token lists, and takes at most some 200 MB of memory.
inline constexpr int64_t kMostBodyValues = int64_t{1} << 20;

// These parse a request's body and throw ApiError 400 for malformed JSON or too many values. The
// second returns an object and keeps the order of keys, which models may see.
Json parse_body(const std::string& body);
OrderedJson parse_ordered_body(const std::string& body);

}  // namespace walsh
