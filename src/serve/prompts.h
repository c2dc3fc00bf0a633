// Reads the prompts of completions, and the texts that are embedded or ranked, from a request's
// fields, within the limits of the model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "serve/fields.h"

namespace walsh {

// A prompt has at most this many positions and bytes. Longer texts are refused before they are
// tokenized.
struct PromptLimits {
  int64_t positions = 0;
  uint64_t bytes = 0;
  // These hold where requests say nothing: TextRequest::shifts and keep, and how many tokens a
  // model may think before it answers (-1: any number).
  bool shifts = false;
  int64_t keep = 0, thinking = -1;
};

// Both throw ApiError 400 naming `field`; `subject` stands for the prompt in the message, such as
// "the prompt". The first refuses a text with more bytes than the context's tokens can have, the
// second a prompt without tokens or with more of them than the context has positions.
void check_prompt_bytes(const std::string& text, const PromptLimits& limits,
                        const std::string& subject, const std::string& field);
void check_prompt_tokens(const std::vector<int32_t>& tokens, int64_t positions,
                         const std::string& subject, const std::string& field);

// This says how prompts are read. encode(text, field, first) returns a text's tokens, with those
// that begin a prompt if it is the first part of one; check(tokens, field) is called for each
// prompt before the next one is read. `field` names the prompt: "KEY[3]", or "KEY" if it is not in
// a list.
struct PromptReader {
  size_t most = 0;  // A request has at most this many prompts.
  const char* plural = "";
  int64_t vocab = 0;
  std::function<std::vector<int32_t>(const std::string&, const std::string&, bool)> encode = {};
  std::function<void(const std::vector<int32_t>&, const std::string&)> check = {};
};

// Returns whether a field has several prompts: it is a list without numbers, which would be tokens
// of a single one.
template <typename AnyJson>
bool has_several_prompts(const AnyJson& input) {
  return input.is_array() &&
         std::none_of(input.begin(), input.end(), [](const auto& one) { return one.is_number(); });
}

// Returns the tokens of a prompt or of each in a list. A prompt is a string, a list of token ids
// among which there may be strings, as in llama.cpp, or an object with the text as "prompt_string"
// or with parts of it as "content". Throws ApiError 400 for anything else.
std::vector<std::vector<int32_t>> read_prompts(const Fields& fields, const char* key,
                                               const PromptReader& reader);

}  // namespace walsh
