// How a model writes calls of tools and its reasoning, as its chat template shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace walsh {

// Where MARK and END stand here, ChatSyntax says what they are.
enum class ToolSyntax : uint8_t {
  // MARK{"name": ..., "arguments": {...}}END: Hermes, Qwen 2.5 and 3, Granite 4, SmolLM3
  hermes,
  // MARK<function=NAME><parameter=KEY>VALUE</parameter>...</function>END: Qwen3-Coder, Qwen 3.5,
  // Seed-OSS
  qwen,
  // MARK NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>... END: GLM-4.5 to 4.7
  glm,
  llama,          // {"name": ..., "parameters": {...}}: Llama 3, and templates of no other kind
  mistral,        // MARK[{"name": ..., "arguments": {...}}, ...]: Mistral, Granite 3
  mistral_named,  // MARK NAME[ARGS]{...}
  harmony,        // channels of GPT-OSS
};

struct ChatSyntax {
  ToolSyntax tools = ToolSyntax::llama;
  // The marks with which calls begin, the usual one first, and the mark behind a call; empty: none.
  std::vector<std::string> call_begins;
  std::string call_end;
  std::string value_space;               // what a qwen call has around a value
  bool shows_tools = false;              // whether the template has a place for tools
  std::string think_begin, think_end;    // empty: the model has no marks for its reasoning
  std::vector<std::string> think_notes;  // marks inside the reasoning, which nobody is shown
  // Marks around what is said behind the reasoning; empty: none.
  std::string response_begin, response_end;
  bool thinking = false;  // the prompt ends inside the reasoning
  bool thought = false;   // or behind it

  // Marks that may be special tokens and have to be seen in the text of an answer; those of calls
  // only if calls are read.
  std::vector<std::string> marks(bool calls) const;
};

ChatSyntax chat_syntax(const std::string& template_source, const std::string& prompt);

}  // namespace walsh
