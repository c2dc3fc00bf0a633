// Parses requests for embeddings, in the forms of OpenAI, llama.cpp and Ollama. Parses requests for
// rankings of documents in the form of Jina and Cohere, or in that of text-embeddings-inference.
#pragma once

#include <string>

#include "api/load.h"
#include "api/reranker.h"
#include "io/json.h"
#include "serve/completion_request.h"
#include "serve/text_readings.h"

namespace walsh {

// Ollama's older form has one prompt, whose embedding keeps its length.
enum class EmbeddingsForm : uint8_t { openai, llama, ollama, old_ollama };

// These two throw ApiError. The model outlives the request; `owner` is that of its texts.
TextReadings::Request parse_embeddings(const OrderedJson& body, EmbeddingsForm form,
                                       const LoadedModel& model, const PromptLimits& limits,
                                       const std::string& model_name, const std::string& owner);
TextReadings::Request parse_rerank(const OrderedJson& body, const Reranker& reranker,
                                   const LoadedModel& model, const PromptLimits& limits,
                                   const std::string& model_name, const std::string& owner);

}  // namespace walsh
