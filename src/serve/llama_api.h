// Translates llama.cpp's /completion and /infill to OpenAI's completions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/json.h"
#include "serve/translated_reply.h"

namespace walsh {

// Translates the request. Throws ApiError 400 for fields that would change the answer and are not
// supported.
OrderedJson completion_of_llama(const OrderedJson& request);

// Translates a request to /infill, in which the prefix and the prompt are continued before the
// suffix.
OrderedJson infill_of_llama(const OrderedJson& request);
// Maps names of the completion's fields to those in a request to /infill.
const FieldNames& infill_names();

// An answer repeats this of its request.
struct LlamaRequest {
  Json settings;                     // they say how tokens were chosen
  std::vector<std::string> prompts;  // they are texts
};

// Translates the answer to the completion back. `request` is the client's.
std::shared_ptr<HttpReply> llama_reply(std::shared_ptr<HttpReply> reply, const OrderedJson& request,
                                       LlamaRequest repeated);

}  // namespace walsh
