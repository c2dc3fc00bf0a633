// Parses tool calls that models write as JSON or as tags.
#include <algorithm>
#include <optional>
#include <utility>

#include "grammar/tagged_object.h"
#include "io/wide_integers.h"
#include "serve/answer_reader.h"
#include "serve/gemma_call.h"
#include "serve/tool_request.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr std::string_view kSpace = " \n\r\t";

std::string trimmed(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  return std::string(text.substr(first, text.find_last_not_of(kSpace) + 1 - first));
}

// A call begins as all templates write it: {"name": "f", "arguments":
struct CallBegin {
  enum class Match : uint8_t { yes, no, unfinished } match = Match::no;
  std::string name;  // it is set when the name is complete
  size_t size = 0;
};

CallBegin match_begin(std::string_view text) {
  size_t at = 0;
  const auto space = [&] {
    while (at < text.size() && kSpace.find(text[at]) != kSpace.npos)
      ++at;
  };
  using Match = CallBegin::Match;
  const auto take = [&](std::string_view token) {
    space();
    const size_t count = std::min(token.size(), text.size() - at);
    if (text.substr(at, count) != token.substr(0, count)) return Match::no;
    at += count;
    return count == token.size() ? Match::yes : Match::unfinished;
  };
  CallBegin begin;
  for (const char* token : {"{", "\"name\"", ":", "\""}) {
    begin.match = take(token);
    if (begin.match != Match::yes) return begin;
  }
  JsonScanner scanner;
  const size_t size = scanner.scan(text.substr(at - 1));
  begin.match = scanner.ended() ? Match::no : Match::unfinished;
  if (!scanner.ended()) return begin;
  const std::string_view name = text.substr(at - 1, size);
  if (name.find('\\') != name.npos) return begin;
  begin.name = name.substr(1, size - 2);
  at += size - 1;
  begin.match = take(",");
  if (begin.match != Match::yes) return begin;
  const size_t key = at;
  begin.match = take("\"arguments\"");
  if (begin.match == Match::no) {
    at = key;
    begin.match = take("\"parameters\"");
  }
  if (begin.match == Match::yes) begin.match = take(":");
  begin.size = at;
  return begin;
}

std::optional<OrderedJson> parsed(const std::string& text) {
  try {
    return parse_exact_json(text, "an answer", {.refuse_duplicate_keys = false});
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

const AnswerReader::Tags& AnswerReader::tags() const {
  static constexpr Tags kQwen = {
      "<function=", ">", "</function>", "<parameter=", ">", "", "</parameter>"};
  static constexpr Tags kMiniMax = {
      "<invoke name=\"", "\">", "</invoke>", "<parameter name=\"", "\">", "", "</parameter>"};
  static constexpr Tags kGlm = {
      "", "", "", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
  switch (options_.syntax.tools) {
    case ToolSyntax::glm:
      return kGlm;
    case ToolSyntax::minimax:
      return kMiniMax;
    default:
      return kQwen;
  }
}

// Returns whether a call is a function between tags, which other functions may follow.
bool AnswerReader::is_tagged() const {
  return options_.syntax.tools == ToolSyntax::qwen || options_.syntax.tools == ToolSyntax::minimax;
}

bool AnswerReader::read_call(bool last) {
  const ToolSyntax syntax = options_.syntax.tools;
  if (syntax == ToolSyntax::llama) return read_bare_call(last);
  take_space();
  if (held_.empty()) return false;
  if (syntax == ToolSyntax::marked) return read_marked_call(last);
  if (syntax == ToolSyntax::python) return read_python_calls(last);
  const bool list = syntax == ToolSyntax::mistral || syntax == ToolSyntax::mistral_named ||
                    syntax == ToolSyntax::command;
  if (held_.front() == '{' && !list) return read_object(last);
  if (held_.front() == '[' || held_.front() == '{') {
    in_list_ = true;
    place_ = Place::list;
    return true;
  }
  switch (syntax) {
    case ToolSyntax::mistral:
    case ToolSyntax::mistral_named:
      return read_named_call(last);
    case ToolSyntax::gemma:
      return read_gemma_call(last);
    case ToolSyntax::glm:
      wrapped_ = true;
      place_ = Place::function;
      return true;
    default:
      break;
  }
  if (!is_tagged()) return give_up();
  const std::string_view mark = tags().begin;
  const Begins found = begins(mark, last);
  if (found == Begins::maybe) return false;
  if (found == Begins::no) return cut_ && mark.starts_with(held_) ? drop_half("") : give_up();
  take(mark.size());
  wrapped_ = true;
  place_ = Place::function;
  return true;
}

// Reads NAME[ARGS]{...}, possibly with [CALL_ID] and an id in between.
bool AnswerReader::read_named_call(bool last) {
  const size_t brace = held_.find('{');
  if (brace == held_.npos && !last) return false;
  const size_t end = std::min(held_.find('['), brace);
  const std::string name = trimmed(std::string_view(held_).substr(0, end));
  if (brace == held_.npos && cut_) return drop_half(end == held_.npos ? "" : name);
  if (brace == held_.npos || !is_tool(name)) return give_up();
  begin_call(name);
  held_.erase(0, brace);
  in_list_ = false;
  value_ = object_ = {};
  place_ = Place::arguments;
  return true;
}

// Reads a call once its end mark is there, because a value may have nothing to show before its end.
bool AnswerReader::read_gemma_call(bool last) {
  const std::string& mark = options_.syntax.call_end;
  const size_t end = held_.find(mark);
  if (end == held_.npos && !last) return false;
  if (end == held_.npos && cut_) return drop_half(gemma_call_name(held_));
  if (end == held_.npos) return give_up();
  const auto call = parse_gemma_call(std::string_view(held_).substr(0, end));
  if (!call || !is_tool(call->name)) return give_up();
  begin_call(call->name);
  add_arguments(call->arguments.dump());
  end_call();
  held_.erase(0, end + mark.size());
  place_ = Place::content;
  return true;
}

// Reads {"name": ..., "parameters": ...} without a mark, possibly several in a row. After the tag,
// reads a program instead.
bool AnswerReader::read_bare_call(bool last) {
  begin_.clear();  // the tag is not content
  skip_space();
  if (begun_calls_ > 0)
    held_.erase(0, std::min(held_.find_first_not_of(" \n\r\t;,"), held_.size()));
  if (held_.empty()) return false;
  if (held_.starts_with('{')) {
    JsonScanner scanner;
    const size_t size = scanner.scan(held_);
    if (!scanner.ended() && !last) return false;
    if (!scanner.ended()) {
      const CallBegin begin = match_begin(held_);
      if (!cut_ || !is_tool(begin.name) || begin.match == CallBegin::Match::no) return give_up();
      begin_call(begin.name);
      add_arguments(std::string_view(held_).substr(begin.size));
      held_.clear();
      return false;
    }
    if (!add_whole_call(held_.substr(0, size))) return give_up();
    held_.erase(0, size);
    return true;
  }
  const auto programs = {"code_interpreter", "python", "ipython"};
  const auto tool =
      std::find_if(programs.begin(), programs.end(), [&](const char* t) { return is_tool(t); });
  if (!python_ || tool == programs.end()) return give_up();
  if (!last) return false;
  begin_call(*tool);
  add_arguments(OrderedJson({{"code", std::exchange(held_, {})}}).dump());
  end_call();
  return false;
}

// Reads a call that is a JSON object, which stands alone or in a list.
bool AnswerReader::read_object(bool last) {
  if (in_list_) {
    take(std::min(held_.find_first_not_of(" \n\r\t[,"), held_.size()));
    if (held_.starts_with(']')) {
      held_.erase(0, 1);
      in_list_ = false;
      begin_.clear();
      place_ = options_.syntax.call_end.empty() ? Place::content : Place::tail;
      return true;
    }
  }
  if (held_.empty()) return false;
  if (held_.front() != '{') return give_up();
  const CallBegin begin = match_begin(held_);
  object_ = value_ = {};
  if (begin.match == CallBegin::Match::yes) {
    if (!is_tool(begin.name)) return give_up();
    begin_call(begin.name);
    object_.scan(std::string_view(held_).substr(0, begin.size));
    held_.erase(0, begin.size);
    place_ = Place::arguments;
    return true;
  }
  const size_t size = object_.scan(held_);
  if (begin.match == CallBegin::Match::unfinished || !object_.ended()) {
    if (!last) return false;
    return cut_ ? drop_half(begin.name) : give_up();
  }
  if (!add_whole_call(held_.substr(0, size))) return give_up();
  held_.erase(0, size);
  place_ = in_list_ ? Place::list : Place::tail;
  return true;
}

bool AnswerReader::read_arguments() {
  if (!value_begun_) {
    skip_space();
    if (held_.empty()) return false;
    value_begun_ = true;
    quoted_ = held_.front() == '"';
  }
  const size_t size = value_.scan(held_);
  const std::string text = held_.substr(0, size);
  object_.scan(text);
  held_.erase(0, size);
  if (quoted_) {
    quoted_text_ += text;
  } else {
    add_arguments(text);
  }
  if (!value_.ended()) return false;
  if (quoted_) {  // the arguments are JSON inside a string
    const auto inner = parsed(quoted_text_);
    add_arguments(inner && inner->is_string() ? inner->get<std::string>() : quoted_text_);
    quoted_text_.clear();
  }
  end_call();
  const bool named = options_.syntax.tools == ToolSyntax::mistral_named && !in_list_;
  place_ = named ? Place::content : Place::tail;
  return true;
}

// Reads the rest of the object and the mark after it.
bool AnswerReader::read_tail(bool last) {
  if (!wrapped_ && !object_.ended()) held_.erase(0, object_.scan(held_));
  if (!wrapped_ && !object_.ended()) return false;
  if (in_list_) {
    place_ = Place::list;
    return true;
  }
  skip_space();
  const bool marked = options_.syntax.tools == ToolSyntax::marked;
  if (marked) held_.erase(0, std::min(held_.find_first_not_of(" \n\r\t`"), held_.size()));
  if (held_.empty()) return false;
  const std::string& end = options_.syntax.call_end;
  const Begins found = end.empty() ? Begins::no : begins(end, last);
  if (found == Begins::maybe) return false;
  if (found == Begins::yes) {
    held_.erase(0, end.size());
    place_ = marked ? Place::call : Place::content;
    return true;
  }
  // Another call may follow inside the same marks; anything else is content.
  const bool tagged = is_tagged() && wrapped_;
  if (tagged && begins(tags().begin, last) == Begins::maybe) return false;
  const bool again = tagged ? held_.starts_with(tags().begin) : held_.front() == '{';
  place_ = again ? Place::call : Place::content;
  return true;
}

// Reads NAME, its parameters, then </function> or the mark after the call.
bool AnswerReader::read_function(bool last) {
  if (function_.empty()) return read_function_name(last);
  skip_space();
  if (held_.starts_with(tags().key_begin)) return read_parameter(last);
  const bool glm = options_.syntax.tools == ToolSyntax::glm;
  if (begins(tags().key_begin, last) == Begins::maybe) return false;
  if (!glm && begins(tags().end, last) == Begins::maybe) return false;
  std::string text;
  const int mark = take_until(
      {glm ? options_.syntax.call_end : std::string(tags().end), options_.syntax.call_end}, last,
      text);
  if (mark < 0 && !last) return false;
  if (mark < 0 && cut_) return false;
  add_arguments("}");
  end_call();
  place_ = mark == 0 && wrapped_ && !glm ? Place::tail : Place::content;
  return true;
}

// Reads a name up to its mark, or in GLM's syntax up to the first byte that cannot be part of a
// name.
bool AnswerReader::read_function_name(bool last) {
  const bool glm = options_.syntax.tools == ToolSyntax::glm;
  const std::string_view mark = tags().name_end;
  const size_t end = glm ? held_.find_first_not_of(kNameLetters) : held_.find(mark);
  if (end == held_.npos && !last) return false;
  const std::string name = trimmed(std::string_view(held_).substr(0, end));
  if (end == held_.npos && cut_) return drop_half("");
  if (!is_tool(name)) return give_up();
  begin_call(name);
  held_.erase(0, end + mark.size());
  add_arguments("{");
  any_parameter_ = false;
  return true;
}

// Reads a key and its value. Malformed ones are skipped.
bool AnswerReader::read_parameter(bool last) {
  const Tags& form = tags();
  const size_t value_end = held_.find(form.value_end);
  if (value_end == held_.npos && !last) return false;
  const size_t key_end = held_.find(form.key_end);
  const std::string name = held_.substr(form.key_begin.size(), key_end - form.key_begin.size());
  size_t value = held_.npos;
  if (key_end < value_end) {
    value = key_end + form.key_end.size();
    if (!form.value_begin.empty()) {
      value = held_.find(form.value_begin, value);
      if (value < value_end) value += form.value_begin.size();
    }
  }
  if (value < held_.size() && value <= value_end) {
    const bool half = value_end == held_.npos && cut_;
    const std::string_view text = std::string_view(held_).substr(value, value_end - value);
    add_arguments((std::exchange(any_parameter_, true) ? ", " : "") + OrderedJson(name).dump() +
                  ": " + (half ? half_parameter(name, text) : parameter(name, text)));
  }
  held_.erase(0, value_end == held_.npos ? value_end : value_end + form.value_end.size());
  return true;
}

bool AnswerReader::is_text(const std::string& name) const {
  const auto tool = options_.texts.find(function_);
  return tool != options_.texts.end() && tool->second.contains(name);
}

// Returns a value according to its schema: strings are taken literally, other values as JSON if
// they are valid.
std::string AnswerReader::parameter(const std::string& name, std::string_view value) const {
  if (is_tagged()) {
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
  }
  const auto json = is_text(name) ? std::nullopt : parsed(trimmed(value));
  return json ? dump_exact(*json) : OrderedJson(std::string(value)).dump();
}

// Returns the beginning of a value, without bytes that may belong to the tag after it.
std::string AnswerReader::half_parameter(const std::string& name, std::string_view value) const {
  if (value.starts_with('\n')) value.remove_prefix(1);
  const std::string_view end = tags().value_end;
  for (size_t n = std::min(value.size(), end.size() - 1); n > 0; --n) {
    if (!value.ends_with(end.substr(0, n))) continue;
    value.remove_suffix(n);
    break;
  }
  if (!is_text(name)) return trimmed(value);
  const std::string text = OrderedJson(std::string(value)).dump();
  return text.substr(0, text.size() - 1);
}

std::map<std::string, std::set<std::string>> text_parameters(const OrderedJson& tools) {
  std::map<std::string, std::set<std::string>> texts;
  const grammar::GraphBuilder builder("tools");
  for (const OrderedJson& tool : tools) {
    const OrderedJson& function = tool["function"];
    const auto parameters = function.find("parameters");
    if (parameters != function.end() && parameters->is_object())
      texts[function["name"].get<std::string>()] = grammar::text_members(builder, *parameters);
  }
  return texts;
}

bool AnswerReader::is_tool(const std::string& name) const {
  return std::any_of(options_.tools.begin(), options_.tools.end(), [&](const OrderedJson& tool) {
    const OrderedJson& function = tool.contains("function") ? tool["function"] : tool;
    return function.value("name", "") == name;
  });
}

void AnswerReader::begin_call(const std::string& name) {
  function_ = name;
  begin_.clear();
  value_begun_ = false;
  space_.clear();
  delta_.calls.push_back({begun_calls_++, name, ""});
}

void AnswerReader::add_arguments(std::string_view text) {
  if (text.empty()) return;
  const size_t index = begun_calls_ - 1;
  if (delta_.calls.empty() || delta_.calls.back().index != index)
    delta_.calls.push_back({index, "", ""});
  delta_.calls.back().arguments += text;
}

void AnswerReader::end_call() {
  ++complete_calls_;
  function_.clear();
}

// Adds a call that is complete. Returns false if it is not a call of one of the request's tools.
bool AnswerReader::add_whole_call(const std::string& object) {
  const auto json = parsed(object);
  if (!json || !json->is_object()) return false;
  const char* const key = options_.syntax.tools == ToolSyntax::command ? "tool_name" : "name";
  if (!json->contains(key) || !(*json)[key].is_string()) return false;
  const auto name = (*json)[key].get<std::string>();
  if (!is_tool(name)) return false;
  OrderedJson arguments = OrderedJson::object();
  for (const char* given : {"arguments", "parameters"})
    if (json->contains(given)) arguments = (*json)[given];
  begin_call(name);
  add_arguments(arguments.is_string() ? arguments.get<std::string>() : dump_exact(arguments));
  end_call();
  return true;
}

}  // namespace walsh
