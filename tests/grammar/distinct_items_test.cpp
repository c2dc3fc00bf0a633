// Lists whose items have to differ.
#include "grammar/distinct_items.h"

#include <gtest/gtest.h>

#include <set>

#include "grammar/grammar_test_util.h"
#include "grammar/json_schema.h"

namespace walsh {
namespace {

std::shared_ptr<const grammar::TokenGrammar> compile(
    std::string_view schema,
    std::shared_ptr<const grammar::TokenVocabulary> vocabulary = test::small_vocabulary()) {
  grammar::GraphBuilder builder("schema");
  const auto root = add_json_schema(builder, parse_ordered_json(schema, "test"));
  return std::make_shared<const grammar::TokenGrammar>(builder.finish(root), std::move(vocabulary),
                                                       "schema");
}

// Whether a text is accepted as tokens of single bytes, each of which has to be allowed.
bool accepts(const std::shared_ptr<const grammar::TokenGrammar>& compiled, std::string_view text) {
  grammar::TokenMatcher matcher(compiled);
  for (const char c : text) {
    const auto token = static_cast<uint8_t>(c);
    const bool allowed = matcher.allowed()->has(token);
    if (!allowed) return false;
    EXPECT_TRUE(matcher.accept(token)) << text << " at " << c;
  }
  return matcher.complete();
}

TEST(DistinctItems, StringsOfASetDiffer) {
  const auto set =
      compile(R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})");
  for (const char* text : {"[]", R"(["a"])", R"(["a", "b"])", R"(["a", "ab", "abc", ""])",
                           R"(["a","a "])", R"(["\"", "\\", "\n"])"})
    EXPECT_TRUE(accepts(set, text)) << text;
  for (const char* text : {R"(["a", "a"])", R"(["a", "b","a"])", R"(["", ""])", R"(["\"","\""])",
                           R"(["\u0061"])", R"(["a" "b"])"})
    EXPECT_FALSE(accepts(set, text)) << text;
}

TEST(DistinctItems, EachListHasItemsOfItsOwn) {
  const auto lists = compile(R"({"$defs": {"set": {"items": {"type": "integer"},
                                                   "uniqueItems": true}},
      "properties": {"a": {"$ref": "#/$defs/set"}, "b": {"$ref": "#/$defs/set"},
                     "c": {"items": {"type": "integer"}}}})");
  EXPECT_TRUE(accepts(lists, R"({"a": [1, 11, 111], "b": [1, 2], "c": [3, 3]})"));
  EXPECT_FALSE(accepts(lists, R"({"a": [1, 11, 1], "b": [1]})"));
  EXPECT_FALSE(accepts(lists, R"({"a": [1], "b": [2,2]})"));
  const auto inside = compile(R"({"items": {"items": {"type": "integer"}, "uniqueItems": true}})");
  EXPECT_TRUE(accepts(inside, "[[1, 2], [2, 1], []]"));
  EXPECT_FALSE(accepts(inside, "[[1, 2], [2, 2]]"));
}

TEST(DistinctItems, NumbersAreEqualHoweverTheyMightBeWritten) {
  const auto set = compile(R"({"type": "array", "items": {"type": ["number", "null", "string"]},
                               "uniqueItems": true})");
  EXPECT_TRUE(accepts(set, R"([1, 1.5, 0, 0.25, null, "1", -1])"));
  for (const char* text : {"[1, 1]", "[1.0]", "[1.50]", "[1e1]", "[null,null]", "[0.5,0.5]"})
    EXPECT_FALSE(accepts(set, text)) << text;
}

// Where few items are possible no comma leads to where none is left.
TEST(DistinctItems, AListEndsWhereNoOtherItemIsPossible) {
  const auto letters = compile(R"({"items": {"type": "string", "pattern": "^[ab]$"},
                                   "uniqueItems": true})");
  EXPECT_TRUE(accepts(letters, R"(["b", "a"])"));
  EXPECT_FALSE(accepts(letters, R"(["b", "a",)"));
  grammar::TokenMatcher matcher(compile(
      R"({"items": {"type": "integer", "minimum": 7, "maximum": 8}, "uniqueItems": true})"));
  for (const char c : std::string("[8,7"))
    ASSERT_TRUE(matcher.accept(c));
  EXPECT_TRUE(matcher.allowed()->has(']'));
  EXPECT_FALSE(matcher.allowed()->has(','));
}

TEST(DistinctItems, TokensOfSeveralItemsAreSeenThrough) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte)
    texts.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {R"(["a","a")", R"(["a","b")", R"(","a")", R"(","b","c")"})
    texts.emplace_back(text);
  grammar::TokenMatcher matcher(
      compile(R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})",
              std::make_shared<grammar::TokenVocabulary>(texts)));
  EXPECT_FALSE(matcher.allowed()->has(256));
  EXPECT_TRUE(matcher.allowed()->has(257));
  for (const char c : std::string(R"(["a)"))
    ASSERT_TRUE(matcher.accept(c));
  EXPECT_FALSE(matcher.allowed()->has(258));
  EXPECT_FALSE(matcher.accept(258));
  ASSERT_TRUE(matcher.allowed()->has(259));
  ASSERT_TRUE(matcher.accept(259));
  for (const char c : std::string(R"(,"c)"))
    ASSERT_TRUE(matcher.accept(c));
  EXPECT_FALSE(matcher.allowed()->has('"'));
}

TEST(DistinctItems, RandomTextsAreWholeAndTheirItemsDiffer) {
  Random random(5);
  for (const char* schema : {
           R"({"items": {"type": "string", "pattern": "^[ab]{1,2}$"}, "uniqueItems": true,
               "minItems": 5})",
           R"({"items": {"type": "string", "maxLength": 1}, "uniqueItems": true, "minItems": 3})",
           R"({"items": {"type": "integer", "minimum": -3, "maximum": 12}, "uniqueItems": true,
               "minItems": 14})",
           R"({"items": {"multipleOf": 0.5, "minimum": 0, "maximum": 4}, "uniqueItems": true,
               "minItems": 8})",
           R"({"items": {"enum": ["a", "b", "c", "d", "e", "f", "g", "h", null, 3]},
               "uniqueItems": true, "minItems": 9})",
           R"({"prefixItems": [{"type": "string", "pattern": "^[ab]$"}, {"enum": ["a", "b"]}],
               "items": {"type": "string", "pattern": "^[abc]$"}, "uniqueItems": true,
               "maxItems": 3})"}) {
    const auto compiled = compile(schema);
    for (int i = 0; i < 40; ++i) {
      const auto sample = test::random_text(compiled, random, 2000);
      ASSERT_TRUE(sample.complete) << schema << "\n" << sample.text;
      const Json items = parse_json(sample.text, "text");
      EXPECT_EQ(std::set<Json>(items.begin(), items.end()).size(), items.size()) << sample.text;
    }
  }
}

}  // namespace
}  // namespace walsh
