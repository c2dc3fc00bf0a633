// Maps tokens to ids and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "io/json.h"
#include "io/keyed_hash.h"

namespace walsh {

class Vocabulary {
 public:
  Vocabulary() = default;
  // Reads an object {token: id}. Throws bad_input for an id that is no integer, negative, used
  // twice, or far larger than the number of tokens.
  Vocabulary(const Json& tokens, std::string_view where);
  Vocabulary(Vocabulary&&) noexcept = default;
  Vocabulary& operator=(Vocabulary&&) noexcept = default;

  // Adds a token of the model. `id` must not be negative or far beyond end(). Throws bad_input if
  // token or id is taken.
  void add(std::string_view token, int32_t id, std::string_view where);
  // Adds a token that is not the model's own, so that find_own() does not see it.
  void extend(std::string_view token, int32_t id, std::string_view where);

  std::optional<int32_t> find(std::string_view token) const;
  std::optional<int32_t> find_own(std::string_view token) const;  // it ignores tokens of extend()
  // Returns the token of an id, or nullptr if there is no such id.
  const std::string* token(int32_t id) const;

  int32_t count() const { return static_cast<int32_t>(ids_.size()); }
  int32_t end() const { return static_cast<int32_t>(tokens_.size()); }  // it is the largest id + 1

 private:
  StringMap<int32_t> ids_;
  std::vector<const std::string*> tokens_;  // they are ordered by id and point to keys of ids_
  std::unordered_set<int32_t> extension_;   // they are the ids of the tokens of extend()
};

}  // namespace walsh
