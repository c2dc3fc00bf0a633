#include "serve/chat_syntax.h"

#include <array>
#include <utility>

namespace walsh {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 5> kThinkMarks = {
    {{"<think>", "</think>"},
     {"<|channel>thought", "<channel|>"},
     {"[THINK]", "[/THINK]"},
     {"<seed:think>", "</seed:think>"},
     {"<|START_THINKING|>", "<|END_THINKING|>"}}};

// Templates that contain all of `texts` write calls in this form.
struct ToolForm {
  std::vector<const char*> texts;
  ToolSyntax syntax;
  std::vector<std::string> begins;
  const char *end, *value_space;
  const char *head_end = "", *section_end = "";
};

// These are all forms; the first matching one is used.
const std::vector<ToolForm>& tool_forms() {
  static const std::vector<ToolForm> forms = {
      {{"<|channel|>"}, ToolSyntax::harmony, {}, "", ""},
      {{"[TOOL_CALLS]", "[ARGS]"}, ToolSyntax::mistral_named, {"[TOOL_CALLS]"}, "", ""},
      {{"[TOOL_CALLS]"}, ToolSyntax::mistral, {"[TOOL_CALLS]"}, "", ""},
      // Granite 3.1 writes the second begin.
      {{"<|tool_call|>"}, ToolSyntax::mistral, {"<|tool_call|>", "<tool_call>"}, "", ""},
      {{"<seed:tool_call>"},
       ToolSyntax::qwen,
       {"<seed:tool_call>", "<function="},
       "</seed:tool_call>",
       ""},
      {{"<minimax:tool_call>"},
       ToolSyntax::minimax,
       {"<minimax:tool_call>", "<invoke name="},
       "</minimax:tool_call>",
       ""},
      {{"<|tool_call_argument_begin|>"},
       ToolSyntax::marked,
       {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
       "<|tool_call_end|>",
       "",
       "<|tool_call_argument_begin|>",
       "<|tool_calls_section_end|>"},
      {{"<\uFF5Ctool\u2581call\u2581begin\uFF5C>"},
       ToolSyntax::marked,
       {"<\uFF5Ctool\u2581calls\u2581begin\uFF5C>", "<\uFF5Ctool\u2581call\u2581begin\uFF5C>"},
       "<\uFF5Ctool\u2581call\u2581end\uFF5C>",
       "",
       "<\uFF5Ctool\u2581sep\uFF5C>",
       "<\uFF5Ctool\u2581calls\u2581end\uFF5C>"},
      {{"<|START_ACTION|>"}, ToolSyntax::command, {"<|START_ACTION|>"}, "<|END_ACTION|>", ""},
      {{"<|tool_call_start|>"},
       ToolSyntax::python,
       {"<|tool_call_start|>"},
       "<|tool_call_end|>",
       ""},
      {{"<arg_key>"}, ToolSyntax::glm, {"<tool_call>"}, "</tool_call>", ""},
      // Some of these models omit the mark around the function.
      {{"<function=", "<parameter="},
       ToolSyntax::qwen,
       {"<tool_call>", "<function="},
       "</tool_call>",
       "\n"},
      {{"<tool_call>"}, ToolSyntax::hermes, {"<tool_call>"}, "</tool_call>", ""},
      {{"<|tool_call>", "<tool_call|>"}, ToolSyntax::gemma, {"<|tool_call>"}, "<tool_call|>", ""},
      {{}, ToolSyntax::llama, {"<|python_tag|>"}, "", ""},
  };
  return forms;
}

const ToolForm& tool_form(const std::string& source) {
  const auto fits = [&](const ToolForm& form) {
    for (const char* text : form.texts)
      if (source.find(text) == source.npos) return false;
    return true;
  };
  for (const ToolForm& form : tool_forms())
    if (fits(form)) return form;
  return tool_forms().back();
}

// Returns the end of the prompt without white space and `notes`.
std::string tail_of(const std::string& prompt, const std::vector<std::string>& notes) {
  std::string tail = prompt;
  for (bool more = true; more;) {
    tail.erase(tail.find_last_not_of(" \n\r\t") + 1);
    more = false;
    for (const std::string& note : notes) {
      if (!tail.ends_with(note)) continue;
      tail.erase(tail.size() - note.size());
      more = true;
    }
  }
  return tail;
}

}  // namespace

ChatSyntax chat_syntax(const std::string& template_source, const std::string& prompt) {
  const auto has = [&](const char* text) {
    return template_source.find(text) != template_source.npos;
  };
  const ToolForm& form = tool_form(template_source);
  ChatSyntax syntax;
  syntax.tools = form.syntax;
  syntax.call_begins = form.begins;
  syntax.call_end = form.end;
  syntax.value_space = form.value_space;
  syntax.head_end = form.head_end;
  syntax.section_end = form.section_end;
  syntax.shows_tools = has("tools");
  if (syntax.tools == ToolSyntax::harmony) return syntax;
  for (const auto& [begin, end] : kThinkMarks) {
    if (!has(end)) continue;
    syntax.think_begin = begin;
    syntax.think_end = end;
    break;
  }
  if (syntax.think_end.empty()) return syntax;
  if (has("<seed:cot_budget_reflect>"))
    syntax.think_notes = {"<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"};
  if (has("<response>") && has("</response>")) {  // Granite 3.2 and 3.3 have these marks
    syntax.response_begin = "<response>";
    syntax.response_end = "</response>";
  }
  if (has("<|END_RESPONSE|>")) {  // Command A has it
    syntax.response_begin = "<|START_RESPONSE|>";
    syntax.response_end = "<|END_RESPONSE|>";
  }
  const std::string tail = tail_of(prompt, syntax.think_notes);
  syntax.thinking = tail.ends_with(syntax.think_begin);
  syntax.thought = tail.ends_with(syntax.think_end);
  return syntax;
}

ChatSyntax enforceable(ChatSyntax syntax) {
  switch (syntax.tools) {
    case ToolSyntax::gemma:
    case ToolSyntax::minimax:
    case ToolSyntax::marked:
    case ToolSyntax::command:
    case ToolSyntax::python:
      break;
    default:
      return syntax;
  }
  const ToolForm& json = tool_forms().back();
  syntax.tools = json.syntax;
  syntax.call_begins = json.begins;
  syntax.call_end = json.end;
  return syntax;
}

std::vector<std::string> ChatSyntax::marks(bool calls) const {
  std::vector<std::string> all;
  const auto add = [&](const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  if (!think_end.empty()) add({think_begin, think_end});
  if (!response_end.empty()) add({response_begin, response_end});
  if (tools == ToolSyntax::harmony)
    add({"<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>", "<|call|>",
         "<|return|>"});
  if (think_end == "<channel|>") add({"<|channel>"});
  if (!calls) return all;
  if (tools == ToolSyntax::gemma) add({"<|\"|>"});
  add(call_begins);
  for (const std::string& mark : {call_end, head_end, section_end})
    if (!mark.empty()) add({mark});
  if (tools == ToolSyntax::mistral_named) add({"[ARGS]", "[CALL_ID]"});
  if (tools == ToolSyntax::glm) add({"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"});
  return all;
}

}  // namespace walsh
