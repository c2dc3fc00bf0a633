#include "serve/chat_syntax.h"

#include <array>
#include <utility>

namespace walsh {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 4> kThinkMarks = {
    {{"<think>", "</think>"},
     {"[THINK]", "[/THINK]"},
     {"<seed:think>", "</seed:think>"},
     {"<|START_THINKING|>", "<|END_THINKING|>"}}};

ToolSyntax tool_syntax(const std::string& source) {
  const auto has = [&](const char* text) { return source.find(text) != source.npos; };
  if (has("<|channel|>")) return ToolSyntax::harmony;
  if (has("[TOOL_CALLS]")) return has("[ARGS]") ? ToolSyntax::mistral_named : ToolSyntax::mistral;
  if (has("<function=") && has("<parameter=")) return ToolSyntax::qwen;
  if (has("<tool_call>")) return ToolSyntax::hermes;
  return ToolSyntax::llama;
}

}  // namespace

ChatSyntax chat_syntax(const std::string& template_source, const std::string& prompt) {
  ChatSyntax syntax;
  syntax.tools = tool_syntax(template_source);
  syntax.shows_tools = template_source.find("tools") != template_source.npos;
  if (syntax.tools == ToolSyntax::harmony) return syntax;
  for (const auto& [begin, end] : kThinkMarks) {
    if (template_source.find(end) == template_source.npos) continue;
    syntax.think_begin = begin;
    syntax.think_end = end;
    break;
  }
  if (syntax.think_end.empty()) return syntax;
  const std::string tail = prompt.substr(0, prompt.find_last_not_of(" \n\r\t") + 1);
  syntax.thinking = tail.ends_with(syntax.think_begin);
  syntax.thought = tail.ends_with(syntax.think_end);
  return syntax;
}

std::vector<std::string> ChatSyntax::marks() const {
  std::vector<std::string> all;
  if (!think_end.empty()) all = {think_begin, think_end};
  const auto add = [&](std::initializer_list<const char*> more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  switch (tools) {
    case ToolSyntax::hermes:
    case ToolSyntax::qwen:
      add({"<tool_call>", "</tool_call>"});
      break;
    case ToolSyntax::llama:
      add({"<|python_tag|>"});
      break;
    case ToolSyntax::mistral:
    case ToolSyntax::mistral_named:
      add({"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"});
      break;
    case ToolSyntax::harmony:
      add({"<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>", "<|call|>",
           "<|return|>"});
      break;
  }
  return all;
}

}  // namespace walsh
