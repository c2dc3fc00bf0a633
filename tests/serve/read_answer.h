// Reads a text of a model as an answer, for tests.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "serve/answer_reader.h"

namespace walsh::test {

inline OrderedJson tools() {
  return parse_ordered_json(R"([
      {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
       "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
      {"type": "function", "function": {"name": "add", "parameters": {}}}])",
                            "tools");
}

struct Read {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;  // names and arguments
  bool operator==(const Read&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Read& read) {
  out << "content [" << read.content << "] reasoning [" << read.reasoning << "]";
  for (const auto& [name, arguments] : read.calls)
    out << " " << name << "(" << arguments << ")";
  return out;
}

// Reads in pieces of `size` bytes, which must not matter. `cut` says that the text ends by the
// number of tokens.
inline Read read_in_pieces(const AnswerReaderOptions& options, const std::string& text, size_t size,
                           bool cut = false) {
  AnswerReader reader(options);
  Read result;
  const auto add = [&](const AnswerDelta& delta) {
    result.content += delta.content;
    result.reasoning += delta.reasoning;
    for (const auto& call : delta.calls) {
      if (call.index == result.calls.size()) result.calls.emplace_back(call.name, "");
      EXPECT_EQ(call.index + 1, result.calls.size());
      result.calls.back().second += call.arguments;
    }
  };
  for (size_t at = 0; at < text.size(); at += size)
    add(reader.push(std::string_view(text).substr(at, size)));
  add(reader.finish(cut));
  EXPECT_EQ(reader.calls(), result.calls.size());
  return result;
}

inline AnswerReaderOptions options_for(const std::string& source, const std::string& prompt = "") {
  AnswerReaderOptions options;
  options.syntax = chat_syntax(source, prompt);
  options.read_tools = true;
  options.tools = tools();
  options.texts = text_parameters(options.tools);
  return options;
}

inline void expect_read(const AnswerReaderOptions& options, const std::string& text,
                        const Read& expected, bool cut = false) {
  for (size_t size = 1; size <= text.size() + 1; size += size < 4 ? 1 : 5)
    ASSERT_EQ(read_in_pieces(options, text, size, cut), expected)
        << text << " in pieces of " << size;
}

inline void expect_cut(const AnswerReaderOptions& options, const std::string& text,
                       const Read& expected) {
  expect_read(options, text, expected, true);
}

}  // namespace walsh::test
