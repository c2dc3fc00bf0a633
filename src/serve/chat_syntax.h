// How a model writes calls of tools and its reasoning, as its chat template shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace walsh {

enum class ToolSyntax : uint8_t {
  hermes,   // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen 2.5 and 3
  qwen,     // <tool_call><function=NAME><parameter=KEY>...</function></tool_call>: Qwen3-Coder, 3.5
  llama,    // {"name": ..., "parameters": {...}}: Llama 3, and templates of no other kind
  mistral,  // [TOOL_CALLS][{"name": ..., "arguments": {...}}]
  mistral_named,  // [TOOL_CALLS]NAME[ARGS]{...}
  harmony,        // channels of GPT-OSS
};

struct ChatSyntax {
  ToolSyntax tools = ToolSyntax::llama;
  bool shows_tools = false;            // whether the template has a place for tools
  std::string think_begin, think_end;  // empty: the model has no marks for its reasoning
  bool thinking = false;               // the prompt ends inside the reasoning
  bool thought = false;                // or behind it

  // Marks that may be special tokens and have to be seen in the text of an answer.
  std::vector<std::string> marks() const;
};

ChatSyntax chat_syntax(const std::string& template_source, const std::string& prompt);

}  // namespace walsh
