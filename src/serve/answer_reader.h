// What a model's text means: content, reasoning, calls of tools.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "serve/chat_syntax.h"
#include "serve/json_scanner.h"

namespace walsh {

struct AnswerDelta {
  struct Call {
    size_t index = 0;
    std::string name;       // with the first piece of a call
    std::string arguments;  // what is added to them: JSON
  };
  std::string content, reasoning;
  std::vector<Call> calls;

  // Adds what comes behind it.
  void append(const AnswerDelta& more) {
    content += more.content;
    reasoning += more.reasoning;
    calls.insert(calls.end(), more.calls.begin(), more.calls.end());
  }
  bool empty() const { return content.empty() && reasoning.empty() && calls.empty(); }
};

struct AnswerReaderOptions {
  ChatSyntax syntax;
  bool read_tools = false;       // calls are read
  bool read_reasoning = true;    // otherwise it is content, with its marks
  bool required = false;         // the answer is calls and nothing else but reasoning
  bool enforced = false;         // what begins as a call can only become one
  size_t most_calls = SIZE_MAX;  // what stands behind them is dropped
  OrderedJson tools;             // of the request: names
  // By the name of a tool its parameters that are texts, where calls do not tell by quotes.
  std::map<std::string, std::set<std::string>> texts;
};

// `texts` of the tools of a request.
std::map<std::string, std::set<std::string>> text_parameters(const OrderedJson& tools);

// Reads one answer piece by piece. Text that begins like a mark is held back until it is one or is
// none; what is no call in the end is content. Of a call that is cut off (by the number of tokens,
// or where calls are enforced by anything else) what has a name is a call with the arguments so
// far, which are no whole JSON then, and what has none is nothing.
class AnswerReader {
 public:
  explicit AnswerReader(AnswerReaderOptions options);

  AnswerDelta push(std::string_view text);
  // `cut`: the model would have gone on.
  AnswerDelta finish(bool cut);
  // Whether what comes next is reasoning, as far as is known.
  bool reasoning() const {
    return place_ == Place::reasoning ||
           (place_ == Place::message && channel_ == "analysis" && !to_tool_);
  }
  // Calls that are complete, and whether more are wanted.
  size_t calls() const { return complete_calls_; }
  bool satisfied() const { return complete_calls_ >= options_.most_calls; }

 private:
  enum class Place : uint8_t {
    begin,  // nothing was read but white space and reasoning
    reasoning,
    content,
    call,       // behind the mark of a call
    list,       // in a list of calls
    arguments,  // in the JSON value of a call's arguments
    tail,       // between them and the end of the call
    function,   // in front of the name of a function whose arguments stand between tags, or behind
    header,     // harmony: in front of <|message|>
    message,    // harmony: behind it
  };
  enum class Begins : uint8_t { yes, no, maybe };
  struct Tags;
  static constexpr std::string_view kFunctionMark = "<function=", kFunctionEnd = "</function>";

  // Each reads what it can of held_ and returns whether there may be more to read.
  bool step(bool last);
  bool read_begin(bool last);
  bool read_bare_call(bool last);
  bool read_content(bool last);
  bool read_call(bool last);
  bool read_named_call(bool last);
  bool read_object(bool last);
  bool read_arguments();
  bool read_tail(bool last);
  bool read_function(bool last);
  bool read_function_name(bool last);
  bool read_parameter(bool last);
  bool read_header(bool last);
  bool read_message(bool last);
  bool read_reasoning(bool last);

  // Up to the first of some marks, which is removed; text that may become one stays. The index of
  // the mark, or -1.
  int take_until(const std::vector<std::string>& marks, bool last, std::string& text);
  Begins begins(std::string_view mark, bool last) const;
  bool give_up();
  bool drop_half(const std::string& name);
  void take(size_t count);
  void take_space();
  void skip_space();
  void add_content(const std::string& text);
  void add_reasoning(const std::string& text);
  void begin_call(const std::string& name);
  void add_arguments(std::string_view text);
  void end_call();
  bool add_whole_call(const std::string& object);
  bool is_tool(const std::string& name) const;
  const Tags& tags() const;
  bool is_text(const std::string& name) const;
  std::string parameter(const std::string& name, std::string_view value) const;
  std::string half_parameter(const std::string& name, std::string_view value) const;

  const AnswerReaderOptions options_;
  Place place_;
  std::string held_;
  AnswerDelta delta_;
  bool thought_ = false, any_reasoning_ = false, python_ = false;
  std::string space_;  // behind content or reasoning, that may be its end
  size_t begun_calls_ = 0, complete_calls_ = 0;
  bool cut_ = false;      // what is held at the end may be half a call
  std::string begin_;     // what was read of a call whose name is not known yet
  bool in_list_ = false;  // the call is one of a list
  bool wrapped_ = false;  // a function between the marks of a call
  std::string function_;  // the tool that is called
  bool any_parameter_ = false, value_begun_ = false, quoted_ = false;
  JsonScanner object_, value_;  // of the call and of its arguments
  std::string quoted_text_;     // arguments that are JSON inside a string
  std::string channel_;
  bool to_tool_ = false;
};

}  // namespace walsh
