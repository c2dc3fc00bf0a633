#include "text/vocabulary.h"

#include "io/printable.h"

namespace walsh {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 22;

// Returns a bound for the ids of this many tokens. Real vocabularies have few holes, and a lone
// huge id must not cost memory.
constexpr size_t id_limit(size_t tokens) {
  return 16 * tokens + 4096;
}

[[noreturn]] void refuse(std::string_view token, std::string_view where,
                         const std::string& reason) {
  throw Error(ErrorCode::bad_input, std::string(where),
              "token \"" + printable(token, 48) + "\" " + reason);
}

}  // namespace

// Reads the tokens. The size of the object bounds the memory: ids beyond id_limit() are refused
// before the table grows.
Vocabulary::Vocabulary(const Json& tokens, std::string_view where) {
  if (tokens.size() > kMaxTokens) {
    throw Error(
        ErrorCode::bad_input, std::string(where),
        std::to_string(tokens.size()) + " tokens, expected at most " + std::to_string(kMaxTokens));
  }
  ids_.reserve(tokens.size());
  const auto limit = static_cast<int64_t>(id_limit(tokens.size()));
  for (const auto& [token, id] : tokens.items()) {
    const bool integer = id.is_number_integer();
    if (!integer || (id.is_number_unsigned() && id.get<uint64_t>() >= uint64_t{1} << 31)) {
      refuse(token, where, "has the id " + describe_json(id));
    }
    const auto value = id.get<int64_t>();
    if (value < 0 || value >= limit) {
      refuse(token, where,
             "has the id " + std::to_string(value) + " in a vocabulary of " +
                 std::to_string(tokens.size()) + " tokens");
    }
    add(token, static_cast<int32_t>(value), where);
  }
}

void Vocabulary::add(std::string_view token, int32_t id, std::string_view where) {
  const auto index = static_cast<size_t>(id);
  if (index >= tokens_.size()) {
    tokens_.resize(index + 1, nullptr);
  }
  if (tokens_[index] != nullptr) {
    refuse(token, where,
           "has the same id as \"" + printable(*tokens_[index], 48) + "\": " + std::to_string(id));
  }
  const auto [place, inserted] = ids_.emplace(token, id);
  if (!inserted) {
    refuse(token, where, "appears twice");
  }
  tokens_[index] = &place->first;
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto place = ids_.find(token);
  return place == ids_.end() ? std::nullopt : std::optional<int32_t>(place->second);
}

void Vocabulary::extend(std::string_view token, int32_t id, std::string_view where) {
  add(token, id, where);
  extension_.insert(id);
}

std::optional<int32_t> Vocabulary::find_own(std::string_view token) const {
  const auto id = find(token);
  return id && extension_.contains(*id) ? std::nullopt : id;
}

const std::string* Vocabulary::token(int32_t id) const {
  const bool known = id >= 0 && static_cast<size_t>(id) < tokens_.size();
  return known ? tokens_[static_cast<size_t>(id)] : nullptr;
}

}  // namespace walsh
