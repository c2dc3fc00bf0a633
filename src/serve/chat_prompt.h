// The messages of a request as the text that the model continues.
#pragma once

#include <functional>
#include <string>

#include "io/json.h"
#include "text/chat_template.h"

namespace walsh {

// From the whole request, whose keys are in the client's order: templates show them to the model.
// Takes the messages, which may be long, out of it.
using ChatPrompt = std::function<std::string(OrderedJson& request)>;

// By the model's template, which outlives the result: messages (texts in parts are joined,
// arguments of tool calls become objects, as transformers' templates want them), tools,
// add_generation_prompt, continue_final_message, chat_template_kwargs, documents. `variables`, an
// object, are told to it where chat_template_kwargs says nothing of them. Throws ApiError 400 for
// what the template refuses.
ChatPrompt make_chat_prompt(const ChatTemplate& chat_template,
                            OrderedJson variables = OrderedJson::object());

}  // namespace walsh
