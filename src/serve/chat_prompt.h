// Turns the messages of a request into the prompt for the model.
#pragma once

#include <functional>
#include <string>

#include "io/json.h"
#include "text/chat_template.h"

namespace walsh {

// Makes the prompt from the whole request, with keys in the client's order, which templates may
// show to the model. Moves the messages, which may be long, out of the request.
using ChatPrompt = std::function<std::string(OrderedJson& request)>;

// Uses the model's template, which must outlive the result, with the request's messages (text parts
// are joined unless there are images beside them, arguments of tool calls become objects, as
// transformers' templates expect), tools, add_generation_prompt, continue_final_message,
// chat_template_kwargs and documents. `variables` (an object) are defaults for
// chat_template_kwargs. Throws ApiError 400 for what the template rejects.
ChatPrompt make_chat_prompt(const ChatTemplate& chat_template,
                            OrderedJson variables = OrderedJson::object());

}  // namespace walsh
