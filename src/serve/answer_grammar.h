// Makes the grammar of a chat's whole answer, which is optional reasoning and then the form that
// the client asks for.
#pragma once

#include <memory>
#include <optional>

#include "api/load.h"
#include "serve/answer_text.h"
#include "serve/chat_syntax.h"
#include "serve/tool_request.h"

namespace walsh {

// Returns the grammar, or null if nothing has to be enforced. A model that reasons may do so first;
// where there are tools, an answer of a required form may be tool calls instead. If no call is
// required but some tool is strict, the answer may be any text; once a call begins, it must be a
// call of a known tool, with arguments that match the schema if the tool is strict, and the answer
// ends after the calls. Compiled grammars are cached per owner (TextRequest::owner), since times
// would tell others which ones were used. Throws ApiError 400 for anything that cannot be enforced.
std::shared_ptr<const grammar::TokenGrammar> chat_grammar(const LoadedModel& model,
                                                          const ChatSyntax& syntax,
                                                          const ToolRequest& tools,
                                                          const std::optional<AnswerText>& text,
                                                          const std::string& owner);

// Returns the grammar of a completion, which has no chat.
std::shared_ptr<const grammar::TokenGrammar> text_grammar(const LoadedModel& model,
                                                          const std::optional<AnswerText>& text,
                                                          const std::string& owner);

}  // namespace walsh
