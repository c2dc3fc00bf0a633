// Parses requests to OpenAI's completion endpoints, with the extensions that clients of llama.cpp
// and vLLM send.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/load.h"
#include "schedule/request.h"
#include "serve/answer_reader.h"
#include "serve/fields.h"
#include "serve/prompts.h"

namespace walsh {

struct CompletionRequest {
  bool chat = false;
  std::vector<std::vector<int32_t>> prompts;  // each gets one answer (or n)
  int64_t n = 1;
  // Every choice is this text, except for its prompt and seed.
  TextRequest text;
  std::vector<std::string> stop;
  bool stream = false, include_usage = false, echo = false;
  bool running_usage = false;  // every chunk of a stream has the usage so far
  bool token_timings = false;  // in every chunk of a stream
  bool token_ids = false;      // the answer has the ids of the prompt's tokens and of its own
  bool scores_by_id = false;   // log-probabilities are given in llama.cpp's form, with ids
  // This says how the answer of a chat is parsed; without it the text is the content.
  std::optional<AnswerReaderOptions> reader;
  bool show_reasoning = true;
  std::optional<ThinkingLimit> thinking;  // It still lacks ThinkingLimit::bytes.
};

// `defaults` are the sampling options that the body leaves open; `owner` is that of its texts.
// Throws ApiError.
CompletionRequest parse_completion(const OrderedJson& body, const LoadedModel& model,
                                   const PromptLimits& limits, const GenerationOptions& defaults,
                                   const std::string& owner);
// `prompt` applies the chat template to the messages.
CompletionRequest parse_chat(const OrderedJson& body, const LoadedModel& model,
                             const PromptLimits& limits, const GenerationOptions& defaults,
                             const std::string& owner, const std::string& prompt);

}  // namespace walsh
