// Translates OpenAI's /v1/responses to its chats, with texts, function tools and formats. It stores
// nothing.
#pragma once

#include <memory>

#include "io/json.h"
#include "serve/http.h"
#include "serve/translated_reply.h"

namespace walsh {

// Translates the request. Throws ApiError 400 for anything that chats do not support, such as
// previous_response_id.
OrderedJson chat_of_responses(const OrderedJson& request);

// Maps names of the chat's fields to those in the original request.
const FieldNames& responses_names();

// Translates the answer to the chat back.
std::shared_ptr<HttpReply> responses_reply(std::shared_ptr<HttpReply> reply,
                                           const OrderedJson& request);

}  // namespace walsh
