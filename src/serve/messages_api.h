// Translates Anthropic's /v1/messages to OpenAI's chats.
#pragma once

#include <memory>

#include "io/json.h"
#include "serve/http.h"
#include "serve/translated_reply.h"

namespace walsh {

// Translates the request. Throws ApiError 400 for anything that chats do not support. With
// `only_count`, only messages, system prompt and tools are looked at.
OrderedJson chat_of_messages(const OrderedJson& request, bool only_count = false);

// Maps names of the chat's fields to those in the original request.
const FieldNames& messages_names();

// Translates the answer to the chat back.
std::shared_ptr<HttpReply> messages_reply(std::shared_ptr<HttpReply> reply);

// Converts OpenAI's error object to {"type": "error", ...}.
Json messages_error(const Json& error);

}  // namespace walsh
