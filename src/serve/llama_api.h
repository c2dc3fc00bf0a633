// Translates llama.cpp's /completion and /infill to OpenAI's completions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/json.h"
#include "serve/translated_reply.h"

namespace walsh {

// Translates the request. Throws ApiError 400 for what would change the answer and is not
// supported.
OrderedJson completion_of_llama(const OrderedJson& request);

// Translates a request to /infill: the prefix and the prompt are continued before the suffix.
OrderedJson infill_of_llama(const OrderedJson& request);
// What the fields of the completion are called there.
const FieldNames& infill_names();

// An answer repeats this of its request.
struct LlamaRequest {
  Json settings;                     // how tokens were chosen
  std::vector<std::string> prompts;  // as texts
};

// Translates the answer to the completion back. `request` is the client's.
std::shared_ptr<HttpReply> llama_reply(std::shared_ptr<HttpReply> reply, const OrderedJson& request,
                                       LlamaRequest repeated);

}  // namespace walsh
