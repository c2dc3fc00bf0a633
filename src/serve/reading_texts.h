// The texts of requests that are read: limits, and what they have in common.
#pragma once

#include <string>
#include <vector>

#include "serve/completion_request.h"
#include "serve/fields.h"

namespace walsh {

// OpenAI's limits of one request: 2048 inputs of 300,000 tokens together.
inline constexpr size_t kMostReadTexts = 2048;
inline constexpr int64_t kMostReadTokens = 300000;

// Refuse a text with 400, naming the field and both numbers: an empty one; one that has more bytes
// than the context's tokens can have; one that has more tokens than the context, or none.
void check_read_text(const std::string& text, const PromptLimits& limits, const std::string& field);
void check_read_tokens(const std::vector<int32_t>& tokens, const PromptLimits& limits,
                       const std::string& field);
// Refuses too many tokens of all texts: `total` counts those of the texts so far, so that no more
// are tokenized in vain.
void check_read_total(int64_t total, const std::string& field);

}  // namespace walsh
