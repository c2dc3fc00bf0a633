// Parses tool calls between marks of their own, and those in Python.
#include <algorithm>

#include "io/wide_integers.h"
#include "serve/answer_reader.h"
#include "serve/python_calls.h"

namespace walsh {
namespace {

constexpr std::string_view kSpace = " \n\r\t`";

std::string_view trimmed(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

// Returns the tool of a call. Its NAME stands in front of the separator, as functions.NAME:NUMBER,
// or after it, in front of a mark that JSON follows.
std::string name_of(std::string_view head, std::string_view behind) {
  behind = trimmed(behind.substr(0, std::min(behind.find("```"), behind.size())));
  std::string_view name = behind.empty() ? trimmed(head) : behind;
  constexpr std::string_view kNamespace = "functions.";
  if (name.starts_with(kNamespace)) name.remove_prefix(kNamespace.size());
  const size_t number = name.find_last_not_of("0123456789");
  if (number != name.npos && number + 1 < name.size() && name[number] == ':')
    name = name.substr(0, number);
  return std::string(name);
}

}  // namespace

// Reads CALL NAME SEPARATOR {...}. The section of the calls may end instead.
bool AnswerReader::read_marked_call(bool last) {
  const ChatSyntax& syntax = options_.syntax;
  const std::string& mark = syntax.call_begins.back();
  const Begins ended = begins(syntax.section_end, last), begun = begins(mark, last);
  if (ended == Begins::maybe || begun == Begins::maybe) return false;
  if (ended == Begins::yes && begun_calls_ > 0) {
    held_.erase(0, syntax.section_end.size());
    begin_.clear();
    place_ = Place::content;
    return true;
  }
  const size_t first = begun == Begins::yes ? mark.size() : 0;
  const size_t head_end = held_.find(syntax.head_end, first);
  if (head_end == held_.npos) {
    if (!last) return false;
    return cut_ ? drop_half("") : give_up();
  }
  const size_t behind = head_end + syntax.head_end.size(), brace = held_.find('{', behind);
  const std::string_view text = held_;
  const std::string name =
      name_of(text.substr(first, head_end - first),
              text.substr(behind, brace == held_.npos ? brace : brace - behind));
  if (brace == held_.npos) {
    if (!last) return false;
    return cut_ ? drop_half(name) : give_up();
  }
  if (!is_tool(name)) return give_up();
  begin_call(name);
  held_.erase(0, brace);
  in_list_ = false;
  wrapped_ = true;  // no object around the arguments has an end
  value_ = object_ = {};
  place_ = Place::arguments;
  return true;
}

// Reads calls once their end mark is there, since half of a call cannot be parsed.
bool AnswerReader::read_python_calls(bool last) {
  const std::string& mark = options_.syntax.call_end;
  const size_t end = held_.find(mark);
  if (end == held_.npos && !last) return false;
  if (end == held_.npos) return cut_ ? drop_half("") : give_up();
  const auto calls = parse_python_calls(std::string_view(held_).substr(0, end));
  const bool known = calls && std::all_of(calls->begin(), calls->end(),
                                          [&](const PythonCall& c) { return is_tool(c.name); });
  if (!known) return give_up();
  begin_.clear();
  for (const PythonCall& call : *calls) {
    if (satisfied()) break;
    begin_call(call.name);
    add_arguments(dump_exact(call.arguments));
    end_call();
  }
  held_.erase(0, end + mark.size());
  place_ = Place::content;
  return true;
}

}  // namespace walsh
