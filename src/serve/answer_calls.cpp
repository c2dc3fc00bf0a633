// Calls of tools in the answers of models that write them as JSON or as tags.
#include <algorithm>
#include <optional>
#include <utility>

#include "grammar/tagged_object.h"
#include "serve/answer_reader.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr std::string_view kSpace = " \n\r\t";

std::string trimmed(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  return std::string(text.substr(first, text.find_last_not_of(kSpace) + 1 - first));
}

// The beginning of a call as all templates show it: {"name": "f", "arguments":
struct CallBegin {
  enum class Match : uint8_t { yes, no, unfinished } match = Match::no;
  std::string name;
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
    return parse_ordered_json(text, "an answer", {.refuse_duplicate_keys = false});
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

bool AnswerReader::read_call(bool last) {
  skip_space();
  if (held_.empty()) return false;
  switch (options_.syntax.tools) {
    case ToolSyntax::qwen:
      switch (begins("<function=", last)) {
        case Begins::maybe:
          return false;
        case Begins::yes:
          held_.erase(0, std::string_view("<function=").size());
          wrapped_ = true;
          place_ = Place::function;
          return true;
        case Begins::no:
          return read_object(last);  // as smaller models of the family write it
      }
      return false;
    case ToolSyntax::mistral:
    case ToolSyntax::mistral_named:
      if (held_.front() != '[' && held_.front() != '{') return read_named_call(last);
      in_list_ = true;
      place_ = Place::list;
      return true;
    case ToolSyntax::llama:
      return read_bare_call(last);
    default:
      return read_object(last);
  }
}

// NAME[ARGS]{...}, between them perhaps [CALL_ID] and an id.
bool AnswerReader::read_named_call(bool last) {
  const size_t brace = held_.find('{');
  if (brace == held_.npos) return last ? give_up("[TOOL_CALLS]") : false;
  const size_t end = std::min(held_.find('['), brace);
  const std::string name = trimmed(std::string_view(held_).substr(0, end));
  if (!is_tool(name)) return give_up("[TOOL_CALLS]");
  begin_call(name);
  held_.erase(0, brace);
  in_list_ = false;
  value_ = object_ = {};
  place_ = Place::arguments;
  return true;
}

// {"name": ..., "parameters": ...} alone, several of them behind each other; or, behind the tag, a
// program.
bool AnswerReader::read_bare_call(bool last) {
  if (begun_calls_ > 0)
    held_.erase(0, std::min(held_.find_first_not_of(" \n\r\t;,"), held_.size()));
  if (held_.empty()) return false;
  if (held_.starts_with('{')) {
    JsonScanner scanner;
    const size_t size = scanner.scan(held_);
    if (!scanner.ended() && !last) return false;
    const std::string object = held_.substr(0, size);
    if (!scanner.ended() || !add_whole_call(object)) return give_up("");
    held_.erase(0, size);
    return true;
  }
  const auto programs = {"code_interpreter", "python", "ipython"};
  const auto tool =
      std::find_if(programs.begin(), programs.end(), [&](const char* t) { return is_tool(t); });
  if (!python_ || tool == programs.end()) return give_up("");
  if (!last) return false;
  begin_call(*tool);
  add_arguments(OrderedJson({{"code", std::exchange(held_, {})}}).dump());
  end_call();
  return false;
}

// A call as a JSON object, alone or in a list.
bool AnswerReader::read_object(bool last) {
  const std::string mark = in_list_ ? "[TOOL_CALLS]" : "<tool_call>";
  if (in_list_) {
    held_.erase(0, std::min(held_.find_first_not_of(" \n\r\t[,"), held_.size()));
    if (held_.starts_with(']')) {
      held_.erase(0, 1);
      place_ = Place::content;
      return true;
    }
  }
  if (held_.empty()) return false;
  const CallBegin begin = match_begin(held_);
  object_ = value_ = {};
  if (begin.match == CallBegin::Match::yes) {
    if (!is_tool(begin.name)) return give_up(mark);
    begin_call(begin.name);
    object_.scan(std::string_view(held_).substr(0, begin.size));
    held_.erase(0, begin.size);
    place_ = Place::arguments;
    return true;
  }
  if (begin.match == CallBegin::Match::unfinished) return last ? give_up(mark) : false;
  const size_t size = object_.scan(held_);
  if (!object_.ended()) return last ? give_up(mark) : false;
  if (!add_whole_call(held_.substr(0, size))) return give_up(mark);
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
  if (quoted_) {  // JSON inside a string
    const auto inner = parsed(quoted_text_);
    add_arguments(inner && inner->is_string() ? inner->get<std::string>() : quoted_text_);
    quoted_text_.clear();
  }
  end_call();
  const bool named = options_.syntax.tools == ToolSyntax::mistral_named && !in_list_;
  place_ = named ? Place::content : Place::tail;
  return true;
}

// The rest of the object, then its closing mark.
bool AnswerReader::read_tail(bool last) {
  if (!wrapped_ && !object_.ended()) held_.erase(0, object_.scan(held_));
  if (!wrapped_ && !object_.ended()) return false;
  if (in_list_) {
    place_ = Place::list;
    return true;
  }
  // Anything but the mark is content.
  skip_space();
  if (held_.empty()) return false;
  const Begins found = begins("</tool_call>", last);
  if (found == Begins::maybe) return false;
  if (found == Begins::yes) held_.erase(0, std::string_view("</tool_call>").size());
  place_ = Place::content;
  return true;
}

// NAME>, then <parameter=KEY>VALUE</parameter> again and again, then </function>.
bool AnswerReader::read_function(bool last) {
  if (function_.empty()) {
    const size_t end = held_.find('>');
    const char* mark = wrapped_ ? "<tool_call>\n<function=" : "<function=";
    if (end == held_.npos) return last ? give_up(mark) : false;
    const std::string name = trimmed(std::string_view(held_).substr(0, end));
    if (!is_tool(name)) return give_up(mark);
    begin_call(name);
    held_.erase(0, end + 1);
    add_arguments("{");
    any_parameter_ = false;
    return true;
  }
  skip_space();
  constexpr std::string_view kBegin = "<parameter=", kEnd = "</parameter>";
  if (held_.starts_with(kBegin)) {
    const size_t name_end = held_.find('>'), value_end = held_.find(kEnd);
    if (value_end == held_.npos && !last) return false;
    if (name_end < value_end) {
      const std::string name = held_.substr(kBegin.size(), name_end - kBegin.size());
      const std::string value = held_.substr(name_end + 1, value_end - name_end - 1);
      held_.erase(0, value_end == held_.npos ? value_end : value_end + kEnd.size());
      add_arguments((std::exchange(any_parameter_, true) ? ", " : "") + OrderedJson(name).dump() +
                    ": " + parameter(name, value));
      return true;
    }
  }
  if (begins(kBegin, last) == Begins::maybe || begins("</function>", last) == Begins::maybe)
    return false;
  std::string text;
  const int mark = take_until({"</function>", "</tool_call>"}, last, text);
  if (mark < 0 && !last) return false;
  add_arguments("}");
  end_call();
  place_ = mark == 0 && wrapped_ ? Place::tail : Place::content;
  return true;
}

// A value as its schema says: texts as they are, anything else as JSON where it is some.
std::string AnswerReader::parameter(const std::string& name, const std::string& text) const {
  std::string_view value = text;
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  const auto tool = options_.texts.find(function_);
  const bool is_text = tool != options_.texts.end() && tool->second.contains(name);
  const auto json = is_text ? std::nullopt : parsed(trimmed(value));
  return json ? json->dump() : OrderedJson(std::string(value)).dump();
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

// False if it is no call of a tool of the request.
bool AnswerReader::add_whole_call(const std::string& object) {
  const auto json = parsed(object);
  if (!json || !json->is_object() || !json->contains("name") || !(*json)["name"].is_string())
    return false;
  const auto name = (*json)["name"].get<std::string>();
  if (!is_tool(name)) return false;
  OrderedJson arguments = OrderedJson::object();
  for (const char* key : {"arguments", "parameters"})
    if (json->contains(key)) arguments = (*json)[key];
  begin_call(name);
  add_arguments(arguments.is_string() ? arguments.get<std::string>() : arguments.dump());
  end_call();
  return true;
}

}  // namespace walsh
