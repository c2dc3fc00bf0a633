// Derives from a chat template how its model writes tool calls and reasoning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace walsh {

// MARK and END below stand for texts that ChatSyntax holds.
enum class ToolSyntax : uint8_t {
  // MARK{"name": ..., "arguments": {...}}END: Hermes, Qwen 2.5 and 3, Granite 4, SmolLM3
  hermes,
  // MARK<function=NAME><parameter=KEY>VALUE</parameter>...</function>END: Qwen3-Coder, Qwen 3.5,
  // Seed-OSS
  qwen,
  // MARK NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>... END: GLM-4.5 to 4.7
  glm,
  // MARK<invoke name="NAME"><parameter name="KEY">VALUE</parameter>...</invoke>END: MiniMax-M2
  minimax,
  // MARK CALL NAME SEPARATOR {...}END CALL ... SECTION_END: Kimi K2; DeepSeek-V3 and R1, with the
  // name
  // behind the separator, V3.1
  marked,
  command,  // MARK[{"tool_call_id": ..., "tool_name": ..., "parameters": {...}}, ...]END: Command
  python,   // MARK[NAME(KEY=VALUE, ...), ...]END: LFM2
  gemma,    // MARK call:NAME{KEY:VALUE,...}END, texts between <|"|>: Gemma 4
  llama,    // {"name": ..., "parameters": {...}}: Llama 3, and templates of no other kind
  mistral,  // MARK[{"name": ..., "arguments": {...}}, ...]: Mistral, Granite 3
  mistral_named,  // MARK NAME[ARGS]{...}
  harmony,        // channels of GPT-OSS
};

struct ChatSyntax {
  ToolSyntax tools = ToolSyntax::llama;
  // These texts begin a call, the usual one first, and the other one stands after a call; empty:
  // none.
  std::vector<std::string> call_begins;
  std::string call_end;
  std::string head_end, section_end;     // of marked calls: behind the name, behind all calls
  std::string value_space;               // white space around a value in qwen calls
  bool shows_tools = false;              // whether the template shows tools to the model
  std::string think_begin, think_end;    // empty: the model does not mark its reasoning
  std::vector<std::string> think_notes;  // marks inside the reasoning that are not shown to anybody
  // These marks stand around the answer after the reasoning; empty: none.
  std::string response_begin, response_end;
  bool thinking = false;  // the prompt ends inside the reasoning
  bool thought = false;   // the prompt ends after the reasoning

  // Returns marks that may be special tokens and must be visible in the answer's text; those of
  // calls only if calls are read.
  std::vector<std::string> marks(bool calls) const;
};

ChatSyntax chat_syntax(const std::string& template_source, const std::string& prompt);
// Returns the syntax of calls that a grammar enforces: JSON where there is no grammar for the
// model's own.
ChatSyntax enforceable(ChatSyntax syntax);

}  // namespace walsh
