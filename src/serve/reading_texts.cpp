#include "serve/reading_texts.h"

#include <fmt/format.h>

namespace walsh {

void check_read_text(const std::string& text, const PromptLimits& limits,
                     const std::string& field) {
  if (text.empty()) throw ApiError(400, fmt::format("'{}' is empty", field), field);
  if (text.size() <= limits.bytes) return;
  throw ApiError(400,
                 fmt::format("this model's maximum context length is {} tokens, but '{}' has {} "
                             "bytes, more than so many tokens can have",
                             limits.positions, field, text.size()),
                 field, kContextLengthExceeded);
}

void check_read_tokens(const std::vector<int32_t>& tokens, const PromptLimits& limits,
                       const std::string& field) {
  if (tokens.empty()) throw ApiError(400, fmt::format("'{}' has no tokens", field), field);
  if (std::ssize(tokens) <= limits.positions) return;
  throw ApiError(400,
                 fmt::format("this model's maximum context length is {} tokens, but '{}' has {}",
                             limits.positions, field, tokens.size()),
                 field, kContextLengthExceeded);
}

void check_read_total(int64_t total, const std::string& field) {
  if (total <= kMostReadTokens) return;
  throw ApiError(
      400, fmt::format("'{}' has more tokens than the {} of one request", field, kMostReadTokens),
      field);
}

}  // namespace walsh
