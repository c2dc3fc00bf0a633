// Parses a model's text into content, reasoning and tool calls.
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
    std::string name;       // the first piece of a call has it
    std::string arguments;  // this JSON is appended to the arguments
  };
  std::string content, reasoning;
  std::vector<Call> calls;

  // Appends a later delta.
  void append(const AnswerDelta& more) {
    content += more.content;
    reasoning += more.reasoning;
    calls.insert(calls.end(), more.calls.begin(), more.calls.end());
  }
  bool empty() const { return content.empty() && reasoning.empty() && calls.empty(); }
};

struct AnswerReaderOptions {
  ChatSyntax syntax;
  bool read_tools = false;       // if so, calls are parsed
  bool read_reasoning = true;    // otherwise reasoning is content, with its marks
  bool required = false;         // the answer is only calls, after reasoning if any
  bool enforced = false;         // text that begins as a call can only become one
  size_t most_calls = SIZE_MAX;  // text after this many calls is dropped
  OrderedJson tools;             // the request's tools give the names of calls
  // Syntaxes that do not quote strings need to know which parameters of each tool are strings.
  std::map<std::string, std::set<std::string>> texts;
};

// Computes `texts` from a request's tools.
std::map<std::string, std::set<std::string>> text_parameters(const OrderedJson& tools);

// Reads one answer piece by piece. Text that may be the beginning of a mark is held back; text that
// turns out to be no call is content. A call that is cut off (by the token limit, or for any reason
// where calls are enforced) is returned with the incomplete arguments if its name is known, and
// dropped otherwise.
class AnswerReader {
 public:
  explicit AnswerReader(AnswerReaderOptions options);

  AnswerDelta push(std::string_view text);
  // `cut` says that the model would have continued.
  AnswerDelta finish(bool cut);
  // Returns whether the next text is reasoning, as far as is known.
  bool reasoning() const {
    return place_ == Place::reasoning ||
           (place_ == Place::message && channel_ == "analysis" && !to_tool_);
  }
  // The first returns the number of complete calls, the second whether no more are wanted.
  size_t calls() const { return complete_calls_; }
  bool satisfied() const { return complete_calls_ >= options_.most_calls; }

 private:
  enum class Place : uint8_t {
    begin,  // nothing was read yet but white space and reasoning
    reasoning,
    content,
    call,       // The text is after the mark that begins a call.
    list,       // The text is in a list of calls.
    arguments,  // The text is in the JSON value of a call's arguments.
    tail,       // it is after the arguments, before the end of the call
    function,   // it is around the name of a function whose arguments stand between tags
    header,     // it is before <|message|> of harmony
    message,    // it is after <|message|> of harmony
  };
  enum class Begins : uint8_t { yes, no, maybe };
  // These tags enclose a call and its arguments.
  struct Tags {
    std::string_view begin, name_end, end, key_begin, key_end, value_begin, value_end;
  };

  // Each of these reads as much of held_ as it can and returns whether more can be read.
  bool step(bool last);
  bool read_begin(bool last);
  bool read_bare_call(bool last);
  bool read_content(bool last);
  bool read_call(bool last);
  bool read_named_call(bool last);
  bool read_gemma_call(bool last);
  bool read_marked_call(bool last);
  bool read_python_calls(bool last);
  bool read_object(bool last);
  bool read_arguments();
  bool read_tail(bool last);
  bool read_function(bool last);
  bool read_function_name(bool last);
  bool read_parameter(bool last);
  bool read_header(bool last);
  bool read_message(bool last);
  bool read_reasoning(bool last);

  // Reads up to the first of several marks, which is removed; text that may become a mark stays.
  // Returns the mark's index, or -1.
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
  bool is_tagged() const;
  bool is_text(const std::string& name) const;
  std::string parameter(const std::string& name, std::string_view value) const;
  std::string half_parameter(const std::string& name, std::string_view value) const;

  const AnswerReaderOptions options_;
  Place place_;
  std::string held_;
  AnswerDelta delta_;
  bool thought_ = false, any_reasoning_ = false, python_ = false;
  // Holds white space after content or reasoning, which is dropped at the end.
  std::string space_;
  size_t begun_calls_ = 0, complete_calls_ = 0;
  bool cut_ = false;      // half a call may be held at the end
  std::string begin_;     // it is the text of a call whose name is not known yet
  bool in_list_ = false;  // the call is in a list of calls
  bool wrapped_ = false;  // a tagged function stands between the marks of a call
  std::string function_;  // this tool is being called
  bool any_parameter_ = false, value_begun_ = false, quoted_ = false;
  JsonScanner object_, value_;  // they find the ends of the call and of its arguments
  std::string quoted_text_;     // it has arguments that are JSON inside a string
  std::string channel_;
  bool to_tool_ = false;
};

}  // namespace walsh
