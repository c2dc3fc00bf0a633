// What OpenAI's completion endpoints are asked for, with the extensions that clients of llama.cpp
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

namespace walsh {

struct CompletionRequest {
  bool chat = false;
  std::vector<std::vector<int32_t>> prompts;  // one answer (or n) for each
  int64_t n = 1;
  // Of every choice, but for prompt and seed.
  TextRequest text;
  std::vector<std::string> stop;
  bool stream = false, include_usage = false, echo = false;
  bool token_timings = false;  // in every piece of a stream
  // How the text of a chat is read; without it, it is content as it is.
  std::optional<AnswerReaderOptions> reader;
  bool show_reasoning = true;
};

// Of a prompt: positions of a text, and bytes that can stand in them. Longer texts are refused
// before anybody makes tokens of them.
struct PromptLimits {
  int64_t positions = 0;
  uint64_t bytes = 0;
};

// `defaults` is how texts are sampled where the body says nothing. Throws ApiError.
CompletionRequest parse_completion(const OrderedJson& body, const LoadedModel& model,
                                   const PromptLimits& limits, const GenerationOptions& defaults);
// `prompt` is what the chat template makes of the messages.
CompletionRequest parse_chat(const OrderedJson& body, const LoadedModel& model,
                             const PromptLimits& limits, const GenerationOptions& defaults,
                             const std::string& prompt);

}  // namespace walsh
