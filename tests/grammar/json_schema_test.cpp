#include "grammar/json_schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/grammar_test_util.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using test::matches;
using testing::HasSubstr;

grammar::Graph compile(std::string_view schema) {
  grammar::GraphBuilder builder("schema");
  const auto root = add_json_schema(builder, parse_ordered_json(schema, "test"));
  return builder.finish(root);
}

// Returns the place and the reason of a refusal.
std::string refusal(std::string_view schema, ErrorCode code = ErrorCode::bad_input) {
  try {
    compile(schema);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "accepted: " << schema;
  return "";
}

void expect_matches(std::string_view schema, std::initializer_list<const char*> good,
                    std::initializer_list<const char*> bad) {
  const auto graph = compile(schema);
  for (const char* text : good)
    EXPECT_TRUE(matches(graph, text)) << schema << "\n" << text;
  for (const char* text : bad)
    EXPECT_FALSE(matches(graph, text)) << schema << "\n" << text;
}

TEST(JsonSchema, AnythingIsJson) {
  expect_matches(
      "{}",
      {"null", "-1.5e+10", R"("a\u00e9\n\"")", R"([1, [], {}])", R"({"a": {"b": [true]}})",
       "[\n  1,\n  2\n]",
       R"(")"
       "\xC3\xA9"
       R"(")"},
      {"", "nul", "01", "1.", "[1,]", "{a: 1}", "\"\n\"", R"("\x")", R"("\ud800")", "[1"});
  expect_matches("true", {"1"}, {"x"});
}

// pydantic describes the fields of type Json[...] so.
TEST(JsonSchema, AStringMayContainAJsonTextWithASchema) {
  expect_matches(R"({"type": "string", "contentMediaType": "application/json"})",
                 {R"("5")", R"("\"a\"")", R"("{\"a\": [true, \"\\\"\\n\"]}")", R"("[\n  1\n]")"},
                 {"5", R"("")", R"("\"a")", R"("{a: 1}")", R"(""a"")", R"("[1")", "\"[\n1]\""});
  expect_matches(
      R"({"$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"},
                     "tail": {"anyOf": [{"$ref": "#/$defs/point"}, {"type": "null"}]}},
                     "required": ["x", "tail"], "additionalProperties": false}},
                     "type": "string", "contentMediaType": "application/json",
                     "contentSchema": {"$ref": "#/$defs/point"}})",
      {R"("{\"x\":1,\"tail\":null}")", R"("{\"x\":1,\"tail\":{\"x\":2,\"tail\":null}}")"},
      {R"("{\"x\":\"1\",\"tail\":null}")", R"("{\"x\":1}")", R"({"x":1,"tail":null})"});
  expect_matches(R"({"anyOf": [{"contentMediaType": "application/json", "type": "string",
                     "contentSchema": {"contentMediaType": "application/json", "type": "string",
                     "contentSchema": {"const": "q"}}}, {"type": "null"}]})",
                 {"null", R"("\"\\\"q\\\"\"")"}, {R"("\"q\"")", R"("q")"});
  // Other media types say nothing that a text could break.
  expect_matches(R"({"type": "string", "contentMediaType": "text/html"})", {R"("<")"}, {"1"});
  EXPECT_THAT(refusal(R"({"contentMediaType": "application/json", "maxLength": 4})"),
              HasSubstr("/contentMediaType: cannot be enforced beside other conditions"));
  EXPECT_THAT(refusal(R"({"contentMediaType": "application/json", "contentEncoding": "base64"})"),
              HasSubstr("/contentMediaType: cannot be enforced beside contentEncoding"));
  EXPECT_THAT(refusal(R"({"not": {"contentMediaType": "application/json"}})"),
              HasSubstr("cannot be enforced inside 'not', 'if' or 'oneOf'"));
  EXPECT_THAT(refusal(R"({"contentMediaType": "application/json", "contentSchema":
                          {"type": "array", "uniqueItems": true, "items": {"type": "integer"}}})"),
              HasSubstr("/contentSchema: uniqueItems cannot be enforced"));
  EXPECT_THAT(refusal(R"({"contentMediaType": "application/json", "contentSchema": {"$ref": "#"}})",
                      ErrorCode::limit),
              HasSubstr("nested more than 4 times"));
}

TEST(JsonSchema, ObjectsHaveTheirPropertiesInOrder) {
  expect_matches(
      R"({"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "null"},
          "c": {"type": "boolean"}}, "required": ["a"]})",
      {R"({"b": 1, "a": null, "c": true})", R"({"a":null})", R"({"b":1,"a":null})",
       "{\n  \"a\": null,\n  \"c\": false\n}"},
      {"{}", R"({"b":1})", R"({"a":null,"b":1})", R"({"a":null,})", R"({"a":null,"d":1})",
       R"({,"a":null})"});
  expect_matches(R"({"type": "object", "properties": {}, "additionalProperties": false})", {"{}"},
                 {R"({"a":1})"});
  expect_matches(R"({"type": "object"})", {"{}", R"({"x": [1]})"}, {"[]"});
}

TEST(JsonSchema, OtherPropertiesHaveOtherNames) {
  expect_matches(
      R"({"type": "object", "properties": {"ab": {"type": "null"}, "a\"": {"type": "null"}},
          "additionalProperties": {"type": "integer"}})",
      {R"({"ab": null, "a\"": null, "abc": 1})", R"({"a": 1})", R"({"": 2, "b": 3})",
       R"({"a\\": 1})",
       R"({")"
       "\xC3\xA9"
       R"(": 1})",
       R"({"a\n": 1})"},
      {R"({"ab": 1})", R"({"a\"": 1})", R"({"a\u0062": 1})", R"({"x": null})",
       R"({"\u0061b": 1})"});
  expect_matches(R"({"additionalProperties": {"type": "null"}, "propertyNames":
                     {"pattern": "^[a-z]+$"}})",
                 {R"({"abc": null})", "{}"}, {R"({"A": null})", R"({"abc": 1})"});
  expect_matches(
      R"({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": false})",
      {R"({"x1": 3})", "{}"}, {R"({"y": 3})", R"({"x1": true})"});
  expect_matches(R"({"properties": {"x1": {"maximum": 9}}, "patternProperties":
                     {"^x": {"type": "integer"}}})",
                 {R"({"x1": 3})"}, {R"({"x1": 3.5})", R"({"x1": 10})"});
}

TEST(JsonSchema, NumbersOfPropertiesAreBounded) {
  expect_matches(
      R"({"properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2, "maxProperties": 2})",
      {R"({"a":1,"c":2})", R"({"b":1,"c":2})"}, {"{}", R"({"a":1})", R"({"a":1,"b":2,"c":3})"});
  expect_matches(R"({"additionalProperties": {"type": "integer"}, "minProperties": 1,
                     "maxProperties": 2})",
                 {R"({"a":1})", R"({"a":1,"c":2})"}, {"{}", R"({"a":1,"b":2,"c":3})"});
  EXPECT_THAT(refusal(R"({"type": "object", "minProperties": 3})"), HasSubstr("/minProperties"));
}

TEST(JsonSchema, Arrays) {
  expect_matches(R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
                 {"[1]", "[1, 2,3]", "[\n 1]"}, {"[]", "[1,2,3,4]", "[null]", "[1,]"});
  expect_matches(R"({"items": {"type": "null"}})", {"[]", "[null,null,null]"}, {"[1]"});
  expect_matches(R"({"prefixItems": [{"type": "integer"}, {"type": "null"}], "items": false})",
                 {"[1,null]"}, {"[1]", "[1,null,2]", "[]"});
  expect_matches(R"({"items": [{"type": "integer"}], "additionalItems": {"type": "null"}})",
                 {"[1]", "[1,null,null]"}, {"[null]", "[1,1]"});
  expect_matches(R"({"type": "array", "maxItems": 0})", {"[]", "[ ]"}, {"[1]"});
  EXPECT_THAT(refusal(R"({"items": {"type": "object"}, "uniqueItems": true})"),
              HasSubstr("/uniqueItems"));
  expect_matches(R"({"type": "array", "contains": {"const": 1}, "minContains": 2,
                     "maxContains": 2})",
                 {"[1, 1]", "[0, 1, null, 1]"}, {"[]", "[1]", "[1, 1, 1]", "[1 1]"});
  expect_matches(R"({"items": {"enum": ["a", "b"]}, "uniqueItems": true})", {"[]", R"(["b", "a"])"},
                 {R"(["a", "a"])"});
}

TEST(JsonSchema, ValuesAreThoseThatEverythingElseAllows) {
  expect_matches(R"({"enum": ["a", 1, null, {"x": [1]}, ")"
                 "\xC3\xA9"
                 R"(\n"]})",
                 {R"("a")", "1", "null", R"({"x":[1]})",
                  R"(")"
                  "\xC3\xA9"
                  R"(\n")"},
                 {R"("b")", "2"});
  expect_matches(R"({"const": "yes"})", {R"("yes")"}, {R"("no")"});
  expect_matches(R"({"type": "string", "enum": ["a", 1, "abc"], "minLength": 2})", {R"("abc")"},
                 {R"("a")", "1"});
  EXPECT_THAT(refusal(R"({"type": "string", "enum": [1]})"), HasSubstr("no finite text"));
  expect_matches(R"({"enum": ["a", "b", 1], "pattern": "a"})", {R"("a")", "1"}, {R"("b")"});
  expect_matches(R"({"enum": [{"a": 1}, {"b": 1}, {"a": 2}], "properties": {"a": {"const": 1}},
                     "additionalProperties": false})",
                 {R"({"a":1})"}, {R"({"b":1})", R"({"a":2})"});
}

TEST(JsonSchema, StringsHaveTheirLengthInCharacters) {
  expect_matches(R"({"type": "string", "minLength": 2, "maxLength": 3})",
                 {R"("ab")",
                  R"(")"
                  "\xC3\xA9\xC3\xA9\xE2\x82\xAC"
                  R"(")",
                  R"("\n\u00e9")", R"("\ud83d\ude00x")"},
                 {R"("a")", R"("abcd")", R"("\ud83d\ude00")"});
}

TEST(JsonSchema, Patterns) {
  expect_matches(R"({"type": "string", "pattern": "^[a-c]{2,3}(-\\d+)?$"})",
                 {R"("ab")", R"("abc-12")"}, {R"("a")", R"("abcd")", R"("ab-")", R"("xab")"});
  expect_matches(R"({"type": "string", "pattern": "b+"})", {R"("abbc")", R"("b")"}, {R"("ac")"});
  expect_matches(R"({"pattern": "^\"\\\\\\n$"})", {R"("\"\\\n")"}, {R"("\"\\")"});
}

TEST(JsonSchema, PatternsAndLengthsCountTogether) {
  expect_matches(R"({"type": "string", "pattern": "^[a-z]+()"
                 "\xC3\xA9"
                 R"([a-z]*)?$", "minLength": 3, "maxLength": 4})",
                 {R"("abc")", R"("ab)"
                              "\xC3\xA9"
                              R"(d")"},
                 {R"("ab")", R"("abcde")", R"("ab1")"});
  expect_matches(R"({"type": "string", "format": "email"})", {R"("a-1@b4.c-4d")"},
                 {R"("a@b.c4")", R"("a@b.c-")"});
  expect_matches(R"({"type": "string", "format": "fraction"})", {R"("-3/4")", R"("12")"},
                 {R"("1/0")", R"("1/")"});
  expect_matches(R"({"type": "string", "format": "email", "maxLength": 255})", {R"("a@b.c")"},
                 {R"("a.b")"});
}

TEST(JsonSchema, WhatIsNoRegularLanguageIsRefused) {
  for (const char* pattern : {"(a)\\\\1", "(?:(?!a)b)*", "[a", "(a", "a{2,1}", "x++", "*"})
    EXPECT_THAT(refusal(std::string(R"({"pattern": ")") + pattern + "\"}"),
                HasSubstr("schema/pattern"))
        << pattern;
}

TEST(JsonSchema, Formats) {
  const auto format = [](const std::string& name) { return R"({"format": ")" + name + "\"}"; };
  expect_matches(format("date"), {R"("2024-02-28")"}, {R"("2024-02-30")", R"("2024-13-01")"});
  expect_matches(format("date-time"),
                 {R"("2024-12-31T23:59:59.5Z")", R"("2024-01-01T00:00:00+01:00")"},
                 {R"("2024-12-31")", R"("2024-12-31T25:00:00Z")"});
  expect_matches(format("uuid"), {R"("01234567-89ab-cdef-0123-456789abcdef")"}, {R"("0123")"});
  expect_matches(format("ipv4"), {R"("255.0.10.199")"}, {R"("256.0.0.1")", R"("01.0.0.1")"});
  expect_matches(format("uri"), {R"("https://a-b.example/x?y=1#z")"}, {R"("a b")"});
  expect_matches(format("ipv6"), {R"("::1")", R"("1:2:3:4:5:6:7:8")"},
                 {R"("1:2")", R"("1::2::3")"});
  expect_matches(format("json-pointer"), {R"("")", R"("/a~1b/0")"}, {R"("a")", R"("/~2")"});
  expect_matches(format("regex"), {R"("^[a-z]+$")"}, {R"("(")", R"("[")"});
  EXPECT_THAT(refusal(format("unheard-of")), HasSubstr("schema/format"));
}

TEST(JsonSchema, IntegersLieBetweenTheirBounds) {
  const auto check = [](int64_t least, int64_t most, int64_t multiple) {
    const auto graph = compile("{\"type\": \"integer\", \"minimum\": " + std::to_string(least) +
                               ", \"maximum\": " + std::to_string(most) +
                               ", \"multipleOf\": " + std::to_string(multiple) + "}");
    for (int64_t value = -1300; value <= 1300; ++value)
      ASSERT_EQ(matches(graph, std::to_string(value)),
                value >= least && value <= most && value % multiple == 0)
          << least << " " << most << " " << multiple << " " << value;
  };
  check(0, 9, 1);
  check(7, 123, 1);
  check(-45, -3, 1);
  check(-1000, 1000, 7);
  check(99, 100, 1);
  check(-1, 1, 1);
  expect_matches(R"({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3})", {"1", "2"},
                 {"0", "3", "-1", "01", "1.0"});
  expect_matches(R"({"type": "integer", "minimum": 0.5, "maximum": 2.5})", {"1", "2"}, {"0", "3"});
  expect_matches(R"({"type": "integer", "minimum": -0.5})", {"0", "9999999999999999"}, {"-1"});
  EXPECT_THAT(refusal(R"({"type": "integer", "minimum": 3, "maximum": 2})"),
              HasSubstr("no finite text"));
  EXPECT_THAT(refusal(R"({"type": "number", "multipleOf": 1.234})"), HasSubstr("/multipleOf"));
}

// Tests multiples as whole numbers of thousandths.
TEST(JsonSchema, MultiplesMayHaveDigitsBehindThePoint) {
  const auto check = [](const char* multiple, int thousandths, int least, int most) {
    const auto graph =
        compile(fmt::format(R"({{"multipleOf": {}, "minimum": {}, "exclusiveMaximum": {}}})",
                            multiple, least / 1000.0, most / 1000.0));
    for (int i = -4000; i <= 4000; ++i) {
      std::string text =
          fmt::format("{}{}.{:03}", i < 0 ? "-" : "", std::abs(i) / 1000, std::abs(i) % 1000);
      while (text.back() == '0')
        text.pop_back();
      if (text.back() == '.') text.pop_back();
      const bool expected = i % thousandths == 0 && i >= least && i < most;
      ASSERT_EQ(matches(graph, text), expected) << multiple << " " << text;
    }
  };
  check("0.01", 10, -3000, 3000);
  check("0.5", 500, -2500, 3500);
  check("0.25", 250, 125, 2001);
  check("1.5", 1500, -4000, 4000);
  check("0.007", 7, -1, 2345);
  check("2e-2", 20, -3999, -1999);
  expect_matches(R"({"type": "number", "multipleOf": 0.01})", {"19.99", "20", "20.0", "0.10", "-3"},
                 {"0.001", "1.", ".5", "20.000", "00.1", "-0"});
  expect_matches(R"({"type": "integer", "multipleOf": 2.5})", {"0", "5", "-10"}, {"2", "2.5"});
  expect_matches(R"({"multipleOf": 0.5, "not": {"type": "integer"}})", {"0.5", "-1.5"},
                 {"1", "1.0", "0"});
  expect_matches(R"({"allOf": [{"multipleOf": 0.2}, {"multipleOf": 0.5}]})", {"1", "0", "-3.0"},
                 {"0.2", "0.5", "1.2"});
}

TEST(JsonSchema, NumbersLieBetweenTheirBounds) {
  const auto check = [](const std::string& schema, auto inside) {
    const auto graph = compile(schema);
    for (int i = -4000; i <= 4000; ++i) {
      std::string text = std::to_string(std::abs(i) / 1000) + "." +
                         std::to_string(1000 + std::abs(i) % 1000).substr(1);
      if (i < 0) text.insert(0, "-");
      ASSERT_EQ(matches(graph, text), inside(i)) << schema << text;
      while (text.back() == '0')
        text.pop_back();
      if (text.back() == '.') text.pop_back();
      ASSERT_EQ(matches(graph, text), inside(i) && text != "-0") << schema << text;
    }
  };
  check(R"({"type": "number", "minimum": 0.25, "maximum": 2.5})",
        [](int i) { return i >= 250 && i <= 2500; });
  check(R"({"type": "number", "exclusiveMinimum": -1.5, "maximum": 0})",
        [](int i) { return i > -1500 && i <= 0; });
  check(R"({"type": "number", "minimum": -3, "exclusiveMaximum": -1.25})",
        [](int i) { return i >= -3000 && i < -1250; });
  check(R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})",
        [](int i) { return i > 0 && i < 1000; });
  check(R"({"type": "number", "minimum": 1e-1})", [](int i) { return i >= 100; });
}

TEST(JsonSchema, Combinations) {
  expect_matches(R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})",
                 {"1", R"("a")"}, {R"("ab")", "null"});
  expect_matches(R"({"type": "object", "properties": {"a": {"type": "integer"}},
                     "anyOf": [{"required": ["a"]}, {"properties": {"b": {"type": "null"}},
                                                    "required": ["b"]}]})",
                 {R"({"a":1})", R"({"a":1,"b":null})", R"({"b":null})"}, {"{}"});
  expect_matches(R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                     {"properties": {"a": {"minimum": 5}, "b": {"type": "null"}}}]})",
                 {R"({"a":7})", R"({"a":7,"b":null})"}, {R"({"a":4})", R"({"b":null})"});
  expect_matches(R"({"type": ["integer", "null"]})", {"1", "null"}, {"1.5", "true"});
  expect_matches(R"({"type": "integer", "nullable": true})", {"1", "null"}, {"1.5"});
  expect_matches(R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false},
                     {"properties": {"b": {}}}]})",
                 {R"({"a":7})", "{}"}, {R"({"b":7})"});
}

TEST(JsonSchema, OneOfIsEnforcedWhereItsSchemasExcludeEachOther) {
  expect_matches(R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", {"1", R"("a")"}, {});
  expect_matches(
      R"({"type": "object", "oneOf": [
          {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind"]},
          {"properties": {"kind": {"const": "b"}, "y": {"type": "null"}}, "required": ["kind"]}]})",
      {R"({"kind":"a","x":1})", R"({"kind":"b","y":null})"}, {R"({"kind":"a","y":null})"});
  expect_matches(R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", {"1.5", "-0.25"},
                 {"1", "1.0", "0"});
  expect_matches(R"({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})",
                 {R"({"a": 1})", R"({"b": 1})"}, {"{}", R"({"a": 1, "b": 1})"});
  EXPECT_THAT(refusal(R"({"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]})"),
              HasSubstr("no finite text"));
}

TEST(JsonSchema, WhatMustNotHoldIsEnforced) {
  expect_matches(R"({"not": {"type": ["string", "number"]}})", {"null", "[]"}, {"1", R"("a")"});
  expect_matches(R"({"type": "string", "not": {"enum": ["a", "bc"]}})", {R"("b")", R"("ab")"},
                 {R"("a")", R"("bc")"});
  expect_matches(R"({"type": "string", "not": {"pattern": "^a"}})", {R"("ba")", R"("")"},
                 {R"("ab")"});
  expect_matches(R"({"type": "integer", "not": {"const": 5}})", {"4", "55"}, {"5"});
  expect_matches(R"({"properties": {"a": {}}, "not": {"required": ["a"]}})", {"{}"},
                 {R"({"a": 1})"});
  expect_matches(R"({"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                     "if": {"properties": {"a": {"minimum": 5}}, "required": ["a"]},
                     "then": {"required": ["b"]}})",
                 {R"({"a": 4})", R"({"a": 5, "b": 1})"}, {R"({"a": 5})"});
  expect_matches(R"({"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}})",
                 {"{}", R"({"b": 1})", R"({"a": 1, "b": 1})"}, {R"({"a": 1})"});
}

// Each of these was once ignored, or seen from the wrong place.
TEST(JsonSchema, NothingThatIsAcceptedIsIgnored) {
  expect_matches(R"({"properties": {"a": {}}, "unevaluatedProperties": {"type": "integer"}})",
                 {R"({"a": "x", "b": 1})"}, {R"({"b": "x"})"});
  expect_matches(R"({"type": "object", "allOf": [{"properties": {"a": {}}},
                     {"unevaluatedProperties": false}]})",
                 {"{}"}, {R"({"a": 1})"});
  expect_matches(R"({"allOf": [{"patternProperties": {"^x": {"type": "integer"}}},
                     {"properties": {"y": {}}, "additionalProperties": false}]})",
                 {R"({"y": 1})"}, {R"({"x": 1})", R"({"x": null})"});
  expect_matches(R"({"$id": "http://a/b", "$ref": "c", "$defs": {"x": {"$id": "c", "type": "null"},
                     "c": {"type": "integer"}}})",
                 {"null"}, {"1"});
  expect_matches(R"({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "null"}}})", {"null"},
                 {"1"});
  expect_matches(R"({"$ref": "#here", "$defs": {"a": {"$anchor": "here", "type": "null"}}})",
                 {"null"}, {"1"});
  expect_matches(R"({"type": "integer", "divisibleBy": 5})", {"10"}, {"11"});
  expect_matches(R"({"type": "number", "exclusiveMinimum": 5.123456789012345})", {"5.13"},
                 {"5.1234567890123451", "5.123456789012345"});
  expect_matches(R"({"properties": {"a": false}, "additionalProperties": true})", {R"({"b": 1})"},
                 {R"({"a": 1})"});
}

// Every keyword of the drafts 4 to 2020-12 that says something of validity: what it does not allow
// is not written. Those that say nothing are remarks.
TEST(JsonSchema, EveryKeywordIsEnforced) {
  struct Case {
    const char *schema, *good, *bad;
  };
  for (const Case& one : {
           Case{R"({"type": "null"})", "null", "1"},
           Case{R"({"enum": [1]})", "1", "2"},
           Case{R"({"const": 1})", "1", "2"},
           Case{R"({"multipleOf": 3})", "9", "10"},
           Case{R"({"divisibleBy": 3})", "9", "10"},
           Case{R"({"maximum": 3})", "3", "3.5"},
           Case{R"({"exclusiveMaximum": 3})", "2.5", "3"},
           Case{R"({"maximum": 3, "exclusiveMaximum": true})", "2.5", "3"},
           Case{R"({"minimum": 3})", "3", "2.5"},
           Case{R"({"exclusiveMinimum": 3})", "3.5", "3"},
           Case{R"({"minimum": 3, "exclusiveMinimum": true})", "3.5", "3"},
           Case{R"({"maxLength": 1})", R"("a")", R"("ab")"},
           Case{R"({"minLength": 2})", R"("ab")", R"("a")"},
           Case{R"({"pattern": "a"})", R"("bab")", R"("b")"},
           Case{R"({"format": "ipv4"})", R"("1.2.3.4")", R"("1.2.3")"},
           Case{R"({"contentEncoding": "base64"})", R"("YQ==")", R"("YQ=")"},
           Case{R"({"contentMediaType": "application/json"})", R"("[1]")", R"("[1")"},
           Case{R"({"items": {"type": "null"}})", "[null]", "[1]"},
           Case{R"({"items": [{"type": "null"}], "additionalItems": false})", "[null]", "[null,1]"},
           Case{R"({"prefixItems": [{"type": "null"}]})", "[null]", "[1]"},
           Case{R"({"maxItems": 1})", "[1]", "[1,1]"},
           Case{R"({"minItems": 1})", "[1]", "[]"},
           Case{R"({"uniqueItems": true, "items": {"type": "boolean"}})", "[true]", "[true,true]"},
           Case{R"({"contains": {"type": "null"}})", "[1,null]", "[1]"},
           Case{R"({"contains": {"type": "null"}, "minContains": 2})", "[null,null]", "[null]"},
           Case{R"({"contains": {"type": "null"}, "maxContains": 1})", "[null]", "[null,null]"},
           Case{R"({"prefixItems": [true], "unevaluatedItems": false})", "[1]", "[1,1]"},
           Case{R"({"maxProperties": 1})", R"({"a":1})", R"({"a":1,"b":1})"},
           Case{R"({"minProperties": 1})", R"({"a":1})", "{}"},
           Case{R"({"required": ["a"]})", R"({"a":1})", "{}"},
           Case{R"({"properties": {"a": {"type": "null"}}})", R"({"a":null})", R"({"a":1})"},
           Case{R"({"patternProperties": {"a": {"type": "null"}}})", R"({"a":null})", R"({"a":1})"},
           Case{R"({"additionalProperties": {"type": "null"}})", R"({"a":null})", R"({"a":1})"},
           Case{R"({"propertyNames": {"const": "a"}})", R"({"a":1})", R"({"b":1})"},
           Case{R"({"unevaluatedProperties": {"type": "null"}})", R"({"a":null})", R"({"a":1})"},
           Case{R"({"dependentRequired": {"a": ["b"]}})", R"({"a":1,"b":1})", R"({"a":1})"},
           Case{R"({"dependentSchemas": {"a": {"required": ["b"]}}})", R"({"a":1,"b":1})",
                R"({"a":1})"},
           Case{R"({"dependencies": {"a": ["b"]}})", R"({"a":1,"b":1})", R"({"a":1})"},
           Case{R"({"allOf": [{"type": "null"}]})", "null", "1"},
           Case{R"({"anyOf": [{"type": "null"}]})", "null", "1"},
           Case{R"({"oneOf": [{"type": "null"}, {"const": 1}, {"type": "integer"}]})", "2", "1"},
           Case{R"({"not": {"type": "integer"}})", "null", "1"},
           Case{R"({"if": {"type": "integer"}, "then": {"const": 1}, "else": {"type": "null"}})",
                "1", "2"},
           Case{R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}})", "null", "1"},
           Case{R"({"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a", "type": "null"}}})",
                "null", "1"},
           Case{R"({"type": "array", "items": {"$recursiveRef": "#"}})", "[[]]", "[1]"},
       })
    expect_matches(one.schema, {one.good}, {one.bad});
  for (const char* keyword : {"disallow", "extends"})
    EXPECT_THAT(refusal(std::string("{\"") + keyword + "\": {}}"), HasSubstr(keyword));
  for (const char* keyword :
       {"$schema", "$comment", "$vocabulary", "title", "description", "default", "examples",
        "deprecated", "readOnly", "writeOnly", "contentMediaType", "contentSchema", "definitions"})
    expect_matches(std::string("{\"") + keyword + "\": {}}", {"1"}, {"x"});
}

TEST(JsonSchema, PatternsLookAround) {
  expect_matches(R"({"pattern": "^(?=.*[0-9])(?!.*x)[a-z0-9]{3,5}$"})", {R"("ab1")"},
                 {R"("abc")", R"("x12")", R"("1a")"});
  expect_matches(R"({"pattern": "^(?!-)[a-z-]+(?<!-)$"})", {R"("a-b")"}, {R"("-a")", R"("a-")"});
  expect_matches(R"({"pattern": "\\bcat\\b"})", {R"("a cat.")", R"("cat")"}, {R"("cats")"});
}

TEST(JsonSchema, References) {
  expect_matches(R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties":
                     {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"},
                     {"type": "null"}]}}, "required": ["value", "next"]}}})",
                 {R"({"value":1,"next":null})", R"({"value":1,"next":{"value":2,"next":null}})"},
                 {R"({"value":1})", R"({"value":1,"next":{}})"});
  expect_matches(R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]"});
  expect_matches(
      R"({"properties": {"a/b~c": {"type": "null"}, "x": {"$ref": "#/properties/a~1b~0c"}}})",
      {R"({"x":null})"}, {R"({"x":1})"});
  EXPECT_THAT(refusal(R"({"$ref": "#/$defs/none"})"), HasSubstr("there is no"));
  EXPECT_THAT(refusal(R"({"$ref": "https://example.com/a"})"), HasSubstr("not in this schema"));
  EXPECT_THAT(refusal(R"({"$ref": "#"})", ErrorCode::limit), HasSubstr("too many"));
  EXPECT_THAT(
      refusal(R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})"),
      HasSubstr("no finite text"));
}

TEST(JsonSchema, WhatCannotBeEnforcedIsNamedWithItsPath) {
  EXPECT_THAT(refusal(R"({"properties": {"a": {"items": {"disallow": "null"}}}})"),
              HasSubstr("schema/properties/a/items/disallow: cannot be enforced"));
  EXPECT_THAT(refusal(R"({"type": "array", "items": {"items": {"type": "integer"},
                          "uniqueItems": true}, "uniqueItems": true})"),
              HasSubstr("schema/uniqueItems: cannot be enforced"));
  EXPECT_THAT(refusal(R"({"type": "strnig"})"),
              HasSubstr("schema/type: '\"strnig\"' is not a type"));
  EXPECT_THAT(refusal(R"({"minLength": "2"})"), HasSubstr("schema/minLength"));
  EXPECT_THAT(refusal("[]"), HasSubstr("a schema is an object"));
  EXPECT_THAT(refusal(R"({"required": "a"})"), HasSubstr("/required"));
}

// A pattern is compiled once for all names of an object, and names are looked up, not searched.
TEST(JsonSchema, ManyNamesAreTriedTogether) {
  std::string properties, required, more;
  for (int i = 0; i < 1500; ++i) {
    properties += fmt::format(R"({}"p{}": {{"type": "integer"}})", i > 0 ? ", " : "", i);
    required += fmt::format(R"({}"p{}")", i > 0 ? ", " : "", i);
    more += fmt::format(R"({}"q{}")", i > 0 ? ", " : "", i);
  }
  compile(R"({"properties": {)" + properties + R"(}, "patternProperties": {"^p1": {"minimum": 5}},
              "propertyNames": {"pattern": "^p"}})");
  expect_matches(R"({"properties": {"a": {}, "b1": {}}, "propertyNames": {"maxLength": 1},
                     "patternProperties": {"^a$": {"type": "integer"}}})",
                 {R"({"a": 1})", "{}"}, {R"({"a": true})", R"({"b1": 1})"});
  compile(R"({"allOf": [{"required": [)" + required + R"(]}, {"required": [)" + more + "]}]}");
}

// The work for a whole schema is bounded, not that for one of its parts.
TEST(JsonSchema, ManyLargePatternsAreRefusedTogether) {
  std::string properties;
  for (int i = 0; i < 200; ++i)
    properties += fmt::format(R"({}"o{}": {{"properties": {{"a": {{}}}},
                                  "patternProperties": {{"^(a|[a-z]{{1,{}}}){{1,20}}$": {{}}}}}})",
                              i > 0 ? ", " : "", i, 20 + i);
  EXPECT_THAT(refusal("{\"properties\": {" + properties + "}}", ErrorCode::limit),
              HasSubstr("more than"));
  // Finding the valid values by trial may itself need trials.
  EXPECT_THAT(
      refusal(R"({"enum": [{}, {"a": {}}], "properties": {"a": {"$ref": "#"}}})", ErrorCode::limit),
      HasSubstr("nested more than 8 times"));
}

// Returns the text of a list of `count` zeros.
std::string zeros(int64_t count) {
  std::string text = "[0";
  for (int64_t i = 1; i < count; ++i)
    text += ",0";
  return text + "]";
}

TEST(JsonSchema, LargeBoundsHoldToTheCharacterAndTheItem) {
  for (const int64_t bound : {4095, 4096, 5119, 5120, 10000, 100000}) {
    const auto longest = compile(fmt::format(R"({{"type": "string", "maxLength": {}}})", bound));
    const auto shortest = compile(fmt::format(R"({{"type": "string", "minLength": {}}})", bound));
    const auto exact =
        compile(fmt::format(R"({{"type": "string", "minLength": {0}, "maxLength": {0}}})", bound));
    for (const int64_t length : {bound - 1, bound, bound + 1}) {
      const std::string text = "\"" + std::string(static_cast<size_t>(length), 'a') + "\"";
      EXPECT_EQ(matches(longest, text), length <= bound) << bound << " " << length;
      EXPECT_EQ(matches(shortest, text), length >= bound) << bound << " " << length;
      EXPECT_EQ(matches(exact, text), length == bound) << bound << " " << length;
    }
  }
  const auto list = compile(R"({"items": {"const": 0}, "minItems": 5000, "maxItems": 9999})");
  for (const int64_t count : {4999, 5000, 7777, 9999, 10000})
    EXPECT_EQ(matches(list, zeros(count)), count >= 5000 && count <= 9999) << count;
  // Bounds that no text reaches cost nothing, and neither do several of them.
  expect_matches(R"({"properties": {"a": {"type": "string", "maxLength": 10000000},
                                    "b": {"type": "string", "maxLength": 2147483647},
                                    "c": {"items": {"type": "null"}, "maxItems": 2147483647},
                                    "d": {"type": "string", "maxLength": 65535}}})",
                 {R"({"a": "x", "b": "", "c": [null], "d": "y"})"}, {R"({"a": 1})"});
}

TEST(JsonSchema, HostileSchemasAreRefusedAtOnce) {
  refusal(R"({"type": "string", "minLength": 1000000000})", ErrorCode::limit);
  refusal(R"({"type": "array", "items": {}, "minItems": 1000000000})", ErrorCode::limit);
  refusal(R"({"pattern": "((a{1000}){1000}){1000}"})", ErrorCode::limit);
  refusal(R"({"pattern": "((){10000}){10000}"})", ErrorCode::limit);
  std::string all = R"({"allOf": [)";
  for (int i = 0; i < 20; ++i)
    all += std::string(i > 0 ? "," : "") + R"({"anyOf": [{"minLength": )" + std::to_string(i) +
           R"(}, {"maxLength": 9}]})";
  EXPECT_THAT(refusal(all + "]}", ErrorCode::limit), HasSubstr("combinations"));
  std::string chain = R"({"$ref": "#/$defs/a0", "$defs": {)";
  for (int i = 0; i < 100; ++i)
    chain +=
        "\"a" + std::to_string(i) + R"(": {"$ref": "#/$defs/a)" + std::to_string(i + 1) + "\"},";
  refusal(chain + R"("a100": {}}})", ErrorCode::limit);
  std::string doubling = R"({"$ref": "#/$defs/a0", "$defs": {)";
  for (int i = 0; i < 60; ++i) {
    const std::string next = R"({"$ref": "#/$defs/a)" + std::to_string(i + 1) + "\"}";
    doubling += "\"a" + std::to_string(i) + R"(": {"allOf": [)" + next + "," + next + "]},";
  }
  refusal(doubling + R"("a60": {}}})", ErrorCode::limit);
}

}  // namespace
}  // namespace walsh
