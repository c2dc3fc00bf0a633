#include "serve/prompts.h"

#include <fmt/format.h>

namespace walsh {
namespace {

constexpr const char* kExpected = "a string, a list of token ids, or a list of these";

// Returns the text of an object with "prompt_string", or with "content" as messages have it.
std::string text_of_object(const Json& object, const Fields& fields, const char* key) {
  const Fields parts(object, key);
  const Json* media = parts.find("multimodal_data");
  if (media != nullptr && !media->empty())
    parts.refuse("multimodal_data", "empty or absent: it is not supported");
  if (const auto text = parts.text("prompt_string")) return *text;
  const Json* content = parts.find("content");
  if (content == nullptr || !content->is_array() || content->empty()) fields.refuse(key, kExpected);
  std::string text;
  for (const Json& part : *content) {
    const Fields one(part, parts.path("content"));
    const auto piece = one.text("text");
    if (one.text("type") != "text" || !piece)
      parts.refuse("content", "made of parts with the type text");
    text += *piece;
  }
  return text;
}

// Returns the tokens of one prompt; `field` names it.
std::vector<int32_t> prompt_tokens(const Json& prompt, const Fields& fields, const char* key,
                                   const std::string& field, const PromptReader& reader) {
  if (prompt.is_string()) return reader.encode(prompt.get_ref<const std::string&>(), field, true);
  if (prompt.is_object()) return reader.encode(text_of_object(prompt, fields, key), field, true);
  if (!prompt.is_array()) fields.refuse(key, kExpected);
  std::vector<int32_t> tokens;
  for (const Json& part : prompt) {
    if (part.is_string()) {
      const auto& text = part.get_ref<const std::string&>();
      const auto more = reader.encode(text, field, &part == &prompt.front());
      tokens.insert(tokens.end(), more.begin(), more.end());
      continue;
    }
    if (!part.is_number_unsigned() || part.get<uint64_t>() >= static_cast<uint64_t>(reader.vocab))
      fields.refuse(key, fmt::format("made of token ids below {}", reader.vocab));
    tokens.push_back(part.get<int32_t>());
  }
  return tokens;
}

}  // namespace

// Refuses a prompt that is too long. Clients of OpenAI recognize these errors by the beginning of
// the message.
void check_prompt_bytes(const std::string& text, const PromptLimits& limits,
                        const std::string& subject, const std::string& field) {
  if (text.size() <= limits.bytes) return;
  throw ApiError(400,
                 fmt::format("this model's maximum context length is {} tokens, but {} has {} "
                             "bytes, more than so many tokens can have",
                             limits.positions, subject, text.size()),
                 field, kContextLengthExceeded);
}

void check_prompt_tokens(const std::vector<int32_t>& tokens, int64_t positions,
                         const std::string& subject, const std::string& field) {
  if (tokens.empty()) throw ApiError(400, subject + " has no tokens", field);
  if (std::ssize(tokens) <= positions) return;
  throw ApiError(400,
                 fmt::format("this model's maximum context length is {} tokens, but {} has {}",
                             positions, subject, tokens.size()),
                 field, kContextLengthExceeded);
}

std::vector<std::vector<int32_t>> read_prompts(const Fields& fields, const char* key,
                                               const PromptReader& reader) {
  const Json* input = fields.find(key);
  if (input == nullptr || (input->is_array() && input->empty())) fields.refuse(key, kExpected);
  const bool several = has_several_prompts(*input);
  if (several && input->size() > reader.most)
    fields.refuse(key, fmt::format("at most {} {}", reader.most, reader.plural));
  std::vector<std::vector<int32_t>> prompts;
  const auto add = [&](const Json& one, const std::string& field) {
    prompts.push_back(prompt_tokens(one, fields, key, field, reader));
    if (reader.check) reader.check(prompts.back(), field);
  };
  if (!several) add(*input, key);
  for (size_t i = 0; several && i < input->size(); ++i)
    add((*input)[i], fmt::format("{}[{}]", key, i));
  return prompts;
}

}  // namespace walsh
