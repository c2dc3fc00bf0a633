// Derives from a chat template how its model writes tool calls and reasoning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace walsh {

// MARK and END below stand for texts that ChatSyntax holds. Each comment names models that write
// such calls.
enum class ToolSyntax : uint8_t {
  // MARK{"name": ..., "arguments": {...}}END is written by Hermes, Qwen 2.5 and 3, Granite 4 and
  // SmolLM3.
  hermes,
  // MARK<function=NAME><parameter=KEY>VALUE</parameter>...</function>END is written by Qwen3-Coder,
  // Qwen 3.5 and Seed-OSS.
  qwen,
  // MARK NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>... END is written by GLM-4.5 to
  // 4.7.
  glm,
  // MARK<invoke name="NAME"><parameter name="KEY">VALUE</parameter>...</invoke>END is written by
  // MiniMax-M2.
  minimax,
  // MARK CALL NAME SEPARATOR {...}END CALL ... SECTION_END is written by Kimi K2 and DeepSeek-V3.1.
  // DeepSeek-V3 and R1 have the name after the separator.
  marked,
  // Command writes MARK[{"tool_call_id": ..., "tool_name": ..., "parameters": {...}}, ...]END.
  command,
  python,  // LFM2 writes MARK[NAME(KEY=VALUE, ...), ...]END
  // Gemma 4 writes MARK call:NAME{KEY:VALUE,...}END, with texts between <|"|>.
  gemma,
  // Llama 3 writes {"name": ..., "parameters": {...}}; this also stands for unknown templates.
  llama,
  // Mistral and Granite 3 write MARK[{"name": ..., "arguments": {...}}, ...].
  mistral,
  mistral_named,  // newer models of Mistral write MARK NAME[ARGS]{...}
  harmony,        // GPT-OSS writes channels
};

struct ChatSyntax {
  ToolSyntax tools = ToolSyntax::llama;
  // These texts begin a call. The usual one comes first, and the other one stands after a call.
  // There may be none.
  std::vector<std::string> call_begins;
  std::string call_end;
  // In marked calls they stand after the name and after all calls.
  std::string head_end, section_end;
  std::string value_space;             // this white space surrounds a value in qwen calls
  bool shows_tools = false;            // the template shows tools to the model
  std::string think_begin, think_end;  // they are empty if the model does not mark its reasoning
  // These marks inside the reasoning are not shown to anybody.
  std::vector<std::string> think_notes;
  // These marks stand around the answer after the reasoning; they are empty if there are none.
  std::string response_begin, response_end;
  bool thinking = false;  // the prompt ends inside the reasoning
  bool thought = false;   // the prompt ends after the reasoning

  // Returns marks that may be special tokens and must be visible in the answer's text. Those of
  // calls are among them only if calls are read.
  std::vector<std::string> marks(bool calls) const;
};

ChatSyntax chat_syntax(const std::string& template_source, const std::string& prompt);
// Returns the syntax of calls that a grammar enforces. It is JSON where there is no grammar for the
// model's own.
ChatSyntax enforceable(ChatSyntax syntax);

}  // namespace walsh
