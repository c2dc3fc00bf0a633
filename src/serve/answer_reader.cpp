#include "serve/answer_reader.h"

#include <algorithm>
#include <utility>

namespace walsh {
namespace {

constexpr std::string_view kSpace = " \n\r\t";

}  // namespace

AnswerReader::AnswerReader(AnswerReaderOptions options)
    : options_(std::move(options)),
      place_(options_.syntax.tools == ToolSyntax::harmony ? Place::header : Place::begin),
      thought_(options_.syntax.thought) {
  if (options_.syntax.thinking && options_.read_reasoning) place_ = Place::reasoning;
}

AnswerDelta AnswerReader::push(std::string_view text) {
  held_ += text;
  while (step(false)) {
  }
  return std::exchange(delta_, {});
}

AnswerDelta AnswerReader::finish(bool cut) {
  cut_ = cut || options_.enforced;
  while (step(true)) {
  }
  if (!cut_) add_content(std::exchange(begin_, {}));  // nothing followed this mark
  if (!held_.empty()) add_content(std::exchange(held_, {}));
  if (begun_calls_ == 0 && place_ == Place::content) delta_.content += std::exchange(space_, {});
  if (options_.required) {
    delta_.content.clear();  // an incomplete mark is dropped
    if (begun_calls_ == 0 && options_.tools.size() == 1 && !reasoning())
      begin_call(options_.tools[0]["function"]["name"].get<std::string>());
  }
  if (begun_calls_ > complete_calls_) end_call();
  return std::exchange(delta_, {});
}

bool AnswerReader::step(bool last) {
  if (satisfied()) {
    held_.clear();
    return false;
  }
  switch (place_) {
    case Place::begin:
      return read_begin(last);
    case Place::reasoning:
      return read_reasoning(last);
    case Place::content:
      return read_content(last);
    case Place::call:
      return read_call(last);
    case Place::list:
      return read_object(last);
    case Place::arguments:
      return read_arguments();
    case Place::tail:
      return read_tail(last);
    case Place::function:
      return read_function(last);
    case Place::header:
      return read_header(last);
    case Place::message:
      return read_message(last);
  }
  return false;
}

int AnswerReader::take_until(const std::vector<std::string>& marks, bool last, std::string& text) {
  size_t place = held_.npos;
  int found = -1;
  for (size_t i = 0; i < marks.size(); ++i) {
    const size_t at = held_.find(marks[i]);
    if (at >= place) continue;
    place = at;
    found = static_cast<int>(i);
  }
  if (found >= 0) {
    text = held_.substr(0, place);
    held_.erase(0, place + marks[static_cast<size_t>(found)].size());
    return found;
  }
  size_t kept = 0;
  for (const std::string& mark : marks)
    for (size_t n = std::min(held_.size(), mark.size() - 1); n > kept && !last; --n)
      if (held_.compare(held_.size() - n, n, mark, 0, n) == 0) kept = n;
  text = held_.substr(0, held_.size() - kept);
  held_.erase(0, text.size());
  return -1;
}

AnswerReader::Begins AnswerReader::begins(std::string_view mark, bool last) const {
  if (std::string_view(held_).starts_with(mark)) return Begins::yes;
  return !last && mark.starts_with(held_) ? Begins::maybe : Begins::no;
}

// Turns the text since the mark into content, because it is no call. The mark is content, too, and
// so is the text up to the next mark.
bool AnswerReader::give_up() {
  place_ = Place::content;
  in_list_ = false;
  add_content(std::exchange(begin_, {}));
  return true;
}

// Ends a call that was cut off, possibly before its name.
bool AnswerReader::drop_half(const std::string& name) {
  if (is_tool(name)) begin_call(name);
  held_.clear();
  return false;
}

// Moves bytes from held_ to the beginning of a call.
void AnswerReader::take(size_t count) {
  begin_ += held_.substr(0, count);
  held_.erase(0, count);
}

void AnswerReader::take_space() {
  take(std::min(held_.find_first_not_of(kSpace), held_.size()));
}

void AnswerReader::skip_space() {
  held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size()));
}

// Adds content. White space is held back where a call may follow, because it is not content before
// a call.
void AnswerReader::add_content(const std::string& text) {
  if (text.empty()) return;
  if (!options_.read_tools) {
    delta_.content += text;
    return;
  }
  const size_t end = text.find_last_not_of(kSpace) + 1;
  if (end > 0) delta_.content += std::exchange(space_, {}) + text.substr(0, end);
  space_ += text.substr(end);
}

void AnswerReader::add_reasoning(const std::string& text) {
  std::string more = text;
  if (!any_reasoning_) more.erase(0, std::min(more.find_first_not_of(kSpace), more.size()));
  const size_t end = more.find_last_not_of(kSpace) + 1;
  if (end > 0) {
    delta_.reasoning += std::exchange(space_, {}) + more.substr(0, end);
    any_reasoning_ = true;
  }
  space_ += more.substr(end);
}

bool AnswerReader::read_begin(bool last) {
  const size_t first = std::min(held_.find_first_not_of(kSpace), held_.size());
  if (first == held_.size() && !last) return false;
  const std::string before = held_.substr(0, first);
  held_.erase(0, first);
  const auto again = [&](Begins found) {  // the white space is included, if more text is available
    if (found == Begins::maybe) held_.insert(0, before);
    return found;
  };
  const ChatSyntax& syntax = options_.syntax;
  if (options_.read_reasoning && !syntax.think_begin.empty() && !thought_) {
    const Begins found = again(begins(syntax.think_begin, last));
    if (found == Begins::maybe) return false;
    if (found == Begins::yes) {
      held_.erase(0, syntax.think_begin.size());
      place_ = Place::reasoning;
      return true;
    }
  }
  if (options_.read_tools && syntax.tools == ToolSyntax::llama) {
    const Begins found = again(begins("<|python_tag|>", last));
    if (found == Begins::maybe) return false;
    if (found == Begins::yes) {
      held_.erase(0, std::string_view("<|python_tag|>").size());
      python_ = true;
      place_ = Place::call;
      return true;
    }
    if (held_.starts_with('{')) {
      place_ = Place::call;
      return true;
    }
  }
  place_ = Place::content;
  if (!thought_) add_content(before);
  return true;
}

bool AnswerReader::read_reasoning(bool last) {
  std::vector<std::string> marks = options_.syntax.think_notes;
  marks.push_back(options_.syntax.think_end);
  std::string text;
  const int mark = take_until(marks, last, text);
  add_reasoning(text);
  if (mark < 0) return false;
  // The mark is a note, which is not shown.
  if (static_cast<size_t>(mark) + 1 < marks.size()) return true;
  thought_ = true;
  space_.clear();
  place_ = Place::begin;
  return true;
}

bool AnswerReader::read_content(bool last) {
  const ChatSyntax& syntax = options_.syntax;
  std::vector<std::string> marks;
  if (options_.read_tools) marks = syntax.call_begins;
  const size_t calls = marks.size();
  if (thought_ && !syntax.response_end.empty())
    marks.insert(marks.end(), {syntax.response_begin, syntax.response_end});
  std::string text;
  const int mark = take_until(marks, last, text);
  add_content(text);  // white space before another call or the end is not content
  if (mark < 0) return false;
  if (static_cast<size_t>(mark) >= calls) return true;
  begin_ = marks[static_cast<size_t>(mark)];
  python_ = syntax.tools == ToolSyntax::llama;
  wrapped_ = false;
  place_ = is_tagged() && begin_ == tags().begin ? Place::function : Place::call;
  return true;
}

bool AnswerReader::read_header(bool last) {
  const size_t end = held_.find("<|message|>");
  if (end == held_.npos && !last) return false;
  const std::string header = held_.substr(0, end);
  // Returns the word after a mark, once it is complete.
  const auto word_behind = [&](std::string_view mark) {
    const size_t place = header.rfind(mark);
    if (place == header.npos) return std::string();
    const std::string rest = header.substr(place + mark.size());
    const size_t size = rest.find_first_of(" <\n");
    return size == rest.npos && end == held_.npos ? std::string() : rest.substr(0, size);
  };
  std::string recipient = word_behind("to=");
  if (recipient.starts_with("functions."))
    recipient.erase(0, std::string_view("functions.").size());
  to_tool_ = options_.read_tools && !recipient.empty() && is_tool(recipient);
  if (end == held_.npos) {
    if (cut_ && to_tool_) return drop_half(recipient);
    if (held_.find("<|") == held_.npos) add_content(held_);
    held_.clear();
    return false;
  }
  held_.erase(0, end + std::string_view("<|message|>").size());
  channel_ = word_behind("<|channel|>");
  if (to_tool_) begin_call(recipient);
  place_ = Place::message;
  return true;
}

bool AnswerReader::read_message(bool last) {
  std::string text;
  const int mark = take_until({"<|end|>", "<|call|>", "<|return|>", "<|start|>"}, last, text);
  if (to_tool_) {
    add_arguments(text);
  } else if (channel_ == "analysis" && options_.read_reasoning) {
    add_reasoning(text);
  } else {
    delta_.content += text;
  }
  if (mark < 0) return false;
  if (to_tool_) end_call();
  to_tool_ = false;
  place_ = Place::header;
  return true;
}

}  // namespace walsh
