#include "serve/prompts.h"

#include <fmt/format.h>

namespace walsh {
namespace {

std::vector<int32_t> token_ids(const Json& list, const Fields& fields, const char* key,
                               int64_t vocab) {
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab))
      fields.refuse(key, fmt::format("made of token ids below {}", vocab));
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace

// Clients of OpenAI recognize these errors by the beginning of the message.
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
  const char* expected = "a string, a list of token ids, or a list of these";
  const Json* input = fields.find(key);
  if (input == nullptr) fields.refuse(key, expected);
  const bool is_list = input->is_array();
  if (!input->is_string() && (!is_list || input->empty())) fields.refuse(key, expected);
  const bool several = is_list && !input->front().is_number();
  if (several && input->size() > reader.most)
    fields.refuse(key, fmt::format("at most {} {}", reader.most, reader.plural));
  std::vector<std::vector<int32_t>> prompts;
  const auto add = [&](const Json& one, const std::string& field) {
    if (!one.is_string() && !one.is_array()) fields.refuse(key, expected);
    prompts.push_back(one.is_string() ? reader.encode(one.get_ref<const std::string&>(), field)
                                      : token_ids(one, fields, key, reader.vocab));
    if (reader.check) reader.check(prompts.back(), field);
  };
  if (!several) add(*input, key);
  for (size_t i = 0; several && i < input->size(); ++i)
    add((*input)[i], fmt::format("{}[{}]", key, i));
  return prompts;
}

}  // namespace walsh
