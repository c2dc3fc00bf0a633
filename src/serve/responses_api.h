// OpenAI's /v1/responses in terms of its chats: texts, function tools, formats. Nothing is stored.
#pragma once

#include <memory>

#include "io/json.h"
#include "serve/http.h"
#include "serve/translated_reply.h"

namespace walsh {

// The chat that a request for a response asks for. Throws ApiError 400 for what chats do not have,
// as previous_response_id.
OrderedJson chat_of_responses(const OrderedJson& request);

// What the fields of such a chat are called in the request for the response.
const FieldNames& responses_names();

// Answers the request for a response with the answer to its chat.
std::shared_ptr<HttpReply> responses_reply(std::shared_ptr<HttpReply> reply,
                                           const OrderedJson& request);

}  // namespace walsh
