#include "grammar/free_text.h"

#include <gtest/gtest.h>

#include "grammar/grammar_test_util.h"

namespace walsh {
namespace {

using grammar::FreeText;
using grammar::NodeId;
using test::matches;

// Makes free text that may end anywhere; behind "<a>" follows 1, behind "ab" 2.
grammar::Graph two_marks(const std::string& first, const std::string& second) {
  grammar::GraphBuilder builder("test");
  const auto rule = builder.rule("root");
  const NodeId a = builder.node(), b = builder.node();
  const FreeText text(builder, {{first, a}, {second, b}}, builder.end(rule));
  builder.empty(builder.start(rule), text.start());
  builder.empty(builder.text(a, "1"), builder.end(rule));
  builder.empty(builder.text(b, "2"), builder.end(rule));
  return builder.finish(rule);
}

TEST(FreeText, IsAnyBytesUntilAMark) {
  const auto graph = two_marks("<a>", "ab");
  for (const char* text : {"", "x", "<", "<a", "\xFF\x80<|im_end|>", "<<a>1", "a<a>1", "\xFF<a>1",
                           "ab2", "aab2", "<ab2", "x<a b"})
    EXPECT_TRUE(matches(graph, text)) << text;
  for (const char* text : {"<a>", "<a>2", "<<a>x", "ab", "abx", "<ab1", "<a>1 "})
    EXPECT_FALSE(matches(graph, text)) << text;
}

TEST(FreeText, FindsMarksThatStandInsideBeginningsOfOthers) {
  const auto graph = two_marks("abcd", "bc");
  EXPECT_TRUE(matches(graph, "abc2"));
  EXPECT_TRUE(matches(graph, "ab bc2"));
  EXPECT_FALSE(matches(graph, "abcd1"));
  const auto alike = two_marks("aab", "aac");
  EXPECT_TRUE(matches(alike, "aaab1"));
  EXPECT_TRUE(matches(alike, "aaaac2"));
  EXPECT_FALSE(matches(alike, "aaaac1"));
}

TEST(FreeText, CanBeJoinedWithAnyByteButSome) {
  grammar::GraphBuilder builder("test");
  const auto rule = builder.rule("root");
  const NodeId behind = builder.node();
  FreeText text(builder, {{"end", behind}}, std::nullopt);
  std::bitset<256> letters;
  letters.set('a').set('b');
  text.join(builder.text(builder.start(rule), "x"), letters);
  builder.empty(behind, builder.end(rule));
  const auto graph = builder.finish(rule);
  EXPECT_TRUE(matches(graph, "x end"));
  EXPECT_TRUE(matches(graph, "xend"));
  EXPECT_TRUE(matches(graph, "x,abend"));
  EXPECT_FALSE(matches(graph, "xaend"));
  EXPECT_FALSE(matches(graph, "xbend"));
  EXPECT_FALSE(matches(graph, "x en"));
}

}  // namespace
}  // namespace walsh
