// Translates Ollama's /api/chat and /api/generate to OpenAI's chats and completions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "io/json.h"
#include "serve/http.h"
#include "serve/translated_reply.h"

namespace walsh {

// Says whether an answer has its text in a message or in "response".
enum class OllamaForm : uint8_t { chat, generate };

// Returns whether a request only asks for the model to be loaded, because it has no messages or no
// prompt.
bool only_loads(const OrderedJson& request, OllamaForm form);

// Translates the request to a chat. Throws ApiError 400 for anything that chats do not support.
OrderedJson chat_of_ollama(const OrderedJson& request, OllamaForm form);
// Translates a request to generate to a completion, without a chat template.
OrderedJson completion_of_ollama(const OrderedJson& request);

// Maps names of the chat's fields to those in the original request.
const FieldNames& ollama_names();

// Translates the answer back to an object, or to lines of objects.
std::shared_ptr<HttpReply> ollama_reply(std::shared_ptr<HttpReply> reply, OllamaForm form);
// Returns the answer to a request that only loads the model.
Json ollama_loaded(const std::string& model, OllamaForm form);

// Converts OpenAI's error object to {"error": message}.
Json ollama_error(const Json& error);

// Clients are told this version of Ollama, because they compare it; its requests are understood.
inline constexpr const char* kOllamaVersion = "0.12.0";
// A model that is never unloaded expires then.
inline constexpr const char* kNeverUnloaded = "9999-12-31T23:59:59Z";

// Returns a time in the form of RFC 3339, in UTC. `seconds` counts from 1970.
std::string ollama_time(double seconds);

}  // namespace walsh
