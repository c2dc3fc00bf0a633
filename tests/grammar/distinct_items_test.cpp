// Tests lists whose items have to differ.
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

// Returns whether a text is accepted as tokens of single bytes, each of which has to be allowed.
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

// Objects and lists are compared without their space; the order of names is always the same.
TEST(DistinctItems, ObjectsAndListsMayBeItems) {
  const auto objects = compile(R"({"items": {"properties": {"b": {"type": "string"},
      "a": {"items": {"type": "integer"}}, "c": {"properties": {"d": {"type": "null"}}}},
      "required": ["b"]}, "uniqueItems": true})");
  for (const char* text : {R"([{"b": "x"}, {"b": "y"}])", R"([{"b": "x"}, {"b": "x", "a": []}])",
                           R"([{"b":"x","a":[1,2]}, {"b":"x","a":[12]}, {"b":"x","a":[2,1]}])",
                           R"([{"b":"x","c":{}}, {"b":"x","c":{"d":null}}])",
                           R"([{"b":"]"}, {"b":"}"}, {"b":"\""}])", R"([{"b":"a b"}, {"b":"ab"}])"})
    EXPECT_TRUE(accepts(objects, text)) << text;
  for (const char* text :
       {R"([{"b": "x"}, {"b": "x"}])", R"([{"b":"x"}, { "b": "x" }])",
        R"([{"b":"x","a":[1,2]},{"b":"x","a":[1, 2]}])", R"([{"a": [1], "b": "x"}])",
        R"([{"b":"x","c":{"d":null}},{"b":"x","c":{ "d":null }}])", R"([{"b":"\u0041"}])",
        R"([{"b":"x","e":1}])"})
    EXPECT_FALSE(accepts(objects, text)) << text;
  const auto pairs = compile(R"({"items": {"prefixItems": [{"type": "integer"}, {"type": "string"}],
      "minItems": 2, "maxItems": 2}, "uniqueItems": true})");
  EXPECT_TRUE(accepts(pairs, R"([[1, "a"], [1, "b"], [2, "a"]])"));
  EXPECT_FALSE(accepts(pairs, R"([[1, "a"], [1,"a"]])"));
  // Alternatives that name the same properties in other orders write them in one.
  const auto either = compile(R"({"items": {"anyOf": [
      {"properties": {"b": {"const": 1}, "a": {"const": 2}}, "required": ["a", "b"]},
      {"properties": {"a": {"const": 2}, "b": {"enum": [1, 3]}}, "required": ["a", "b"]},
      {"enum": [{"b": 1, "a": 2}, {"a": 2, "b": 1}]}]}, "uniqueItems": true})");
  EXPECT_TRUE(accepts(either, R"([{"a":2,"b":1},{"a":2,"b":3}])"));
  EXPECT_FALSE(accepts(either, R"([{"a":2,"b":1},{"a":2,"b":1}])"));
  EXPECT_FALSE(accepts(either, R"([{"b":1,"a":2}])"));
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
           R"({"items": {"properties": {"b": {"type": "boolean"}, "a": {"enum": [1, 2, null]}},
               "required": ["b"]}, "uniqueItems": true, "minItems": 7})",
           R"({"items": {"items": {"type": "integer", "minimum": 0, "maximum": 1},
               "minItems": 2, "maxItems": 3}, "uniqueItems": true, "minItems": 10})",
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
