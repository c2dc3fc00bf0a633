// Anthropic's /v1/messages in terms of OpenAI's chats: texts, tools, images not.
#pragma once

#include <memory>

#include "io/json.h"
#include "serve/http.h"
#include "serve/translated_reply.h"

namespace walsh {

// The chat that a request for a message asks for. Throws ApiError 400 for what chats do not have.
// Only messages, system prompt and tools are looked at if the tokens are only counted.
OrderedJson chat_of_messages(const OrderedJson& request, bool only_count = false);

// What the fields of such a chat are called in the request for the message.
const FieldNames& messages_names();

// Answers a request for a message with the answer to its chat.
std::shared_ptr<HttpReply> messages_reply(std::shared_ptr<HttpReply> reply);

// {"type": "error", ...} for OpenAI's error object.
Json messages_error(const Json& error);

}  // namespace walsh
