// Makes grammars over a vocabulary of single bytes and some longer tokens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "grammar/distinct_items.h"
#include "grammar/gbnf.h"
#include "grammar/stack_space.h"
#include "grammar/token_grammar.h"
#include "text/utf8.h"

namespace walsh::test {

// A token's id is its byte up to 255; then come some longer texts.
inline std::shared_ptr<const grammar::TokenVocabulary> small_vocabulary() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte)
    texts.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"true", "false", "null", "\": ", "{\"", "\"}", "\",\"", "12", "the ",
                           "hello", ", ", "\xC3\xA9t\xC3\xA9", "\xE2\x82", "\\\"", "\n  ", "}]"})
    texts.emplace_back(text);
  return std::make_shared<grammar::TokenVocabulary>(std::move(texts));
}

inline grammar::Graph gbnf(std::string_view text) {
  grammar::GraphBuilder builder("grammar");
  const auto root = add_gbnf(builder, text);
  return builder.finish(root);
}

// Returns whether all of a text matches; the automaton is given byte by byte.
inline bool matches(const grammar::Graph& graph, std::string_view text) {
  grammar::StackSpace space(graph, "grammar");
  space.allow(100'000'000);
  const grammar::DistinctItems none;
  grammar::DistinctItems::Trial items(none);
  return space.complete(read_text(space, space.start(), items, text));
}

// The text has random tokens of those that are allowed, until nothing can follow or, where the text
// may end, with probability 1/4; it is incomplete after `most` tokens.
struct RandomText {
  std::string text;
  bool complete = false;
};
inline RandomText random_text(const std::shared_ptr<const grammar::TokenGrammar>& compiled,
                              Random& random, int most) {
  grammar::TokenMatcher matcher(compiled);
  RandomText result;
  for (int i = 0; i < most && matcher.can_continue(); ++i) {
    if (matcher.complete() && random.below(4) == 0) break;
    const auto allowed = matcher.allowed();
    std::vector<int32_t> choice;
    for (size_t id = 0; id < compiled->vocabulary().size(); ++id)
      if (allowed->has(static_cast<int32_t>(id))) choice.push_back(static_cast<int32_t>(id));
    if (choice.empty()) break;
    const int32_t token = choice[random.below(choice.size())];
    if (!matcher.accept(token)) break;
    result.text += compiled->vocabulary().text(token);
  }
  result.complete = matcher.complete();
  return result;
}

}  // namespace walsh::test
