// Reads a config.json and tracks which keys have been used. A key that is neither used nor known to
// have no effect is refused, because it may change what the model computes.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"

namespace walsh {

class ConfigReader {
 public:
  // `object` must outlive the reader. `where` is the file's name for messages.
  ConfigReader(const Json& object, std::string where);

  const std::string& where() const { return where_; }
  // Returns whether the key is present, even as null.
  bool has(const char* key) const;
  bool is_null(const char* key) const;  // Returns false if the key is absent.
  // Returns the value, or null if the key is absent or its value is null. The key counts as used.
  const Json* value(const char* key);

  // These throw bad_input if the key is absent or its value is out of range.
  int64_t integer(const char* key, int64_t min, int64_t max);
  double number(const char* key, double min, double max);
  // An absent key gives the fallback. transformers keeps an explicit null and fails where it
  // computes with it; therefore a null number is refused, but a null flag is false.
  int64_t integer_or(const char* key, int64_t fallback, int64_t min, int64_t max);
  double number_or(const char* key, double fallback, double min, double max);
  bool boolean_or(const char* key, bool fallback);
  // These read numbers for which transformers takes null as absent, or which it does not read.
  int64_t optional_integer(const char* key, int64_t fallback, int64_t min, int64_t max);
  double optional_number(const char* key, double fallback, double min, double max);
  std::optional<std::string> text(const char* key);
  // Returns an id or a list of ids; absent and null give none.
  std::vector<int32_t> ids(const char* key);

  // Throws "'key' is FOUND: EXPECTED".
  [[noreturn]] void refuse(const char* key, std::string_view expected) const;
  // Returns whether the key has a value that has not been read yet.
  bool pending(const char* key) const;
  // Refuses a value other than `supported`, unless the key has been read already.
  void only(const char* key, const Json& supported);

  // Throws bad_input for a key that has neither been read nor is on the list of keys without
  // effect. A null value means "not set" and passes.
  void finish() const;

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string, std::less<>> understood_;
};

}  // namespace walsh
