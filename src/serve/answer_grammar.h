// The grammar of a chat's whole answer: reasoning, then what the client wants.
#pragma once

#include <memory>
#include <optional>

#include "api/load.h"
#include "serve/answer_text.h"
#include "serve/chat_syntax.h"
#include "serve/tool_request.h"

namespace walsh {

// Null if nothing has to be enforced. A model that reasons may do so first; a text of a required
// form may be calls of tools instead where there are tools. Where no call is required and a tool is
// strict, the answer is any text in which calls, once one begins, are of tools that there are, with
// arguments as the strict ones want them; behind the calls it ends. Throws ApiError 400 for what
// cannot be enforced.
std::shared_ptr<const grammar::TokenGrammar> chat_grammar(const LoadedModel& model,
                                                          const ChatSyntax& syntax,
                                                          const ToolRequest& tools,
                                                          const std::optional<AnswerText>& text);

// The same for a text without a chat.
std::shared_ptr<const grammar::TokenGrammar> text_grammar(const LoadedModel& model,
                                                          const std::optional<AnswerText>& text);

}  // namespace walsh
